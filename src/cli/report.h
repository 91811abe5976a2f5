// Tables and bars that the commands print.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "engine/memory_plan.h"
#include "engine/stats.h"

namespace bevy {

// Rows of name and value, the names in one column.
void print_table(std::FILE* out, const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& rows);
void print_memory_plan(std::FILE* out, const MemoryPlan& plan);
// The end of a run: the engine's numbers and the peak of resident memory.
void print_summary(std::FILE* out, const EngineStats& stats);

// The largest resident set of this process so far, or since the restart where the kernel knows it.
uint64_t peak_resident_bytes();
void restart_peak_resident_bytes();

// Writes a whole file. kIo: it could not be.
Status write_text_file(const std::string& path, const std::string& text);
// To standard output. False: it could not be written, a message has been printed.
bool print_output(const std::string& text);

// A bar on a terminal; elsewhere a line every few seconds.
class ProgressLine {
public:
    enum class Unit : uint8_t { kBytes, kCount };
    ProgressLine(std::FILE* out, std::string what, bool quiet, Unit unit = Unit::kBytes);
    ~ProgressLine();
    void update(uint64_t done, uint64_t total);

private:
    std::FILE* out_;
    std::string what_;
    bool quiet_;
    Unit unit_;
    bool live_;
    bool drawn_ = false;
    int shown_percent_ = -1;
    Instant shown_at_;
};

}  // namespace bevy
