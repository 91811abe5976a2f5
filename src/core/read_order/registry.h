// The table of read orders: names for --read-order, help and errors.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/read_order/read_order.h"

namespace bevy {

struct ReadOrderRow {
    std::string_view name;
    std::string_view summary;  // for --help
    std::unique_ptr<ReadOrder> (*make)();
};

std::span<const ReadOrderRow> read_orders();

std::unique_ptr<ReadOrder> make_lag_order();
std::unique_ptr<ReadOrder> make_fifo_order();
std::unique_ptr<ReadOrder> make_fewest_missing_order();
std::unique_ptr<ReadOrder> make_most_waiters_order();

}  // namespace bevy
