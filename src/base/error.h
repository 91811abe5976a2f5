// Operating errors as values: what went wrong, and what the user can do about it.
//
// User input, files, disks and memory limits produce an Error, never an assertion or an exception
// across a folder border.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace bevy {

enum class ErrorCode : uint8_t {
    kInvalidArgument,  // a flag, field or request is malformed or out of range
    kNotFound,         // a file, shard, tensor or key does not exist
    kCorruptFile,      // a file contradicts itself or ends too early
    kUnsupported,      // well-formed, but not something Bevy can do
    kBudget,           // memory, slots or context do not suffice
    kIo,               // the disk or the operating system refused
    kCancelled,        // the client or the user gave up
    kQueueFull,        // a bounded queue has no room now
};

struct Error {
    ErrorCode code;
    std::string message;  // one sentence that names the cause: which file, tensor, flag, number
    std::string hint;     // one sentence that names a remedy; may be empty

    // "message (hint)" for terminals and logs.
    std::string text() const { return hint.empty() ? message : message + "\n  hint: " + hint; }
};

template <class T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

inline std::unexpected<Error> fail(ErrorCode code, std::string message, std::string hint = {}) {
    return std::unexpected(Error{code, std::move(message), std::move(hint)});
}

}  // namespace bevy
