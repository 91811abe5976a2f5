// Writes a copy of a model with wider experts that computes the same: the load of a large model
// with the routing and the text of a small one.
//
// The new units of an expert repeat the gate and up rows of its own units, so that the bytes are as
// real as those of the model; their columns in the down matrix are zero, so what they compute
// counts for nothing. New units share no block of weights or of eight-bit activations with old
// ones, because rows are whole blocks, so every sum only gets zeros added to it.
//
// Copies front to back; holds one expert's matrix in memory. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.h"
#include "model/gguf_writer.h"

namespace bevy {

struct InflatedModelSpec {
    std::string model;       // the file to copy; not a split one
    uint32_t expert_ff = 0;  // the new width
    std::string path;        // of the new file
    bool overwrite = false;
    // Bytes of weights written so far, and in all. False gives up (kCancelled). May be empty.
    std::function<bool(uint64_t done, uint64_t total)> on_progress;
};

// Errors: as ModelFile::open; kUnsupported (no experts, a split model, a type that can't be
// padded), kInvalidArgument (a width that is not larger, or does not fit the type; the file
// exists), kCorruptFile (widths contradict each other), kIo, kCancelled. After an error no file is
// left behind.
Result<WrittenModel> write_inflated_model(const InflatedModelSpec& spec);

}  // namespace bevy
