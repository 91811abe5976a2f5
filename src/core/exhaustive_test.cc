// Every course that the world can take around the core, in settings so small that all of them can
// be tried: which read ends next, whether a step ends before it, when requests arrive, where one of
// them is cancelled or one read fails.
//
// Each course is run from the start (the core is cheap), following a list of choices; the next list
// is the last one with its last choice that has alternatives moved on (P. Godefroid's stateless
// search, without reductions).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <format>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "core/core.h"
#include "core/state.h"

namespace bevy {
namespace {

// The choices of one course.
class Choices {
public:
    uint32_t pick(uint32_t alternatives) {
        if (next_ == made_.size())
            made_.push_back({0, alternatives});
        BEVY_ASSERT(made_[next_].of == alternatives);  // the same choices lead to the same place
        return made_[next_++].chosen;
    }
    // False: that was the last course.
    bool next_course() {
        while (!made_.empty() && made_.back().chosen + 1 == made_.back().of)
            made_.pop_back();
        if (made_.empty())
            return false;
        made_.back().chosen++;
        next_ = 0;
        return true;
    }
    std::string text() const {
        std::string text;
        for (const Choice& choice : made_)
            text += std::format("{}/{} ", choice.chosen, choice.of);
        return text;
    }

private:
    struct Choice {
        uint32_t chosen;
        uint32_t of;
    };
    std::vector<Choice> made_;
    size_t next_ = 0;
};

struct Setting {
    std::string policy = "bevy";
    uint32_t experts = 3;  // per layer; there are two layers
    uint32_t top_k = 1;
    uint32_t slots = 2;
    uint32_t reads = 2;
    std::vector<uint32_t> passes = {1, 1};  // by request: how many tokens run
    uint32_t cancellations = 0;             // at most, in one course
    uint32_t errors = 0;
    // [request][pass][layer]: the first of its experts; the others follow it in a circle.
    std::function<uint32_t(uint32_t request, uint32_t pass, uint32_t layer)> route;
    // Mistakes of the world that must be noticed.
    bool lose_an_arrival = false;
    bool deliver_garbage = false;
};

constexpr uint32_t kLayers = 2;
constexpr int kEventsMax = 500;

// The world of one course: performs what the core decides, checks it, and lets things happen.
class World {
public:
    World(const Setting& setting, Choices& choices)
        : setting_(setting),
          choices_(choices),
          core_(std::move(Core::create(config_of(setting)).value())),
          slots_(setting.slots),
          cancellations_(setting.cancellations),
          errors_(setting.errors) {}

    // What is wrong; nothing if all is well.
    std::optional<std::string> run() {
        arrive();
        for (int events = 0; events < kEventsMax && !wrong_; events++) {
            decide();
            core_->check_invariants();
            if (wrong_ || !something_happens())
                break;
        }
        if (wrong_)
            return wrong_;
        if (!core_->idle() || arrived_ < setting_.passes.size())
            return "it does not end: nothing is under way, or it goes round in circles";
        for (uint32_t r = 0; r < setting_.passes.size(); r++) {
            if (!gone_.contains(r) && passes_done_[r] != setting_.passes[r])
                return std::format("request {} ended after {} passes", r, passes_done_[r]);
        }
        return std::nullopt;
    }

private:
    struct Slot {
        std::optional<ExpertId> holds;
        std::optional<Ticket> loading;
        bool in_step = false;
    };

    static CoreConfig config_of(const Setting& setting) {
        CoreConfig config;
        config.moe_layers = kLayers;
        config.experts_per_layer = setting.experts;
        config.experts_used = setting.top_k;
        config.slots = setting.slots;
        config.sequences = static_cast<uint32_t>(setting.passes.size());
        config.queue_max = 4;
        config.reads_inflight_max = setting.reads;
        config.prefill_sequences = 1;
        config.expert_bytes = 1 << 20;
        config.dense_bytes = {1 << 20, 1 << 20, 1 << 20};
        config.policy = setting.policy;
        config.guessed_layers = 1;
        return config;
    }

    void fail(std::string what) {
        if (!wrong_)
            wrong_ = std::move(what);
    }
    void handle(const Event& event) {
        now_ = now_ + microseconds(100);
        core_->handle(event, now_);
    }
    void arrive() { handle(RequestArrived{RequestId(arrived_++), 1}); }

    // Experts of a route in the order of the router.
    std::vector<uint32_t> route(uint32_t request, uint32_t pass, uint32_t layer) const {
        std::vector<uint32_t> experts;
        for (uint32_t k = 0; k < setting_.top_k; k++)
            experts.push_back((setting_.route(request, pass, layer) + k) % setting_.experts);
        return experts;
    }

    // --- what the core wants --------------------------------------------------------------------

    void decide() {
        while (auto action = core_->next(now_))
            std::visit([this](const auto& a) { perform(a); }, *action);
    }
    void perform(const AdmitRequest& action) {
        of_seq_[action.seq] = static_cast<uint32_t>(action.request.value);
    }
    void perform(const StartRead& action) {
        Slot& slot = slots_[action.slot.value];
        if (slot.loading || slot.in_step)
            fail("a read into a slot that is in use");
        if (reads_.contains(action.ticket))
            fail("a ticket that is in use");
        slot = {.holds = {}, .loading = action.ticket};
        reads_[action.ticket] = action;
    }
    void perform(const CancelRead& action) {
        if (!reads_.contains(action.ticket))
            fail("a cancellation of a read that is not in flight");
    }
    void perform(const FailRequest& action) {
        gone_.insert(static_cast<uint32_t>(action.request.value));
    }
    void perform(const StartStep& step) {
        if (step_)
            fail("two steps at once");
        for (const StepUse& use : step.uses) {
            Slot& slot = slots_[use.slot.value];
            const ExpertId wanted((step.stage - 1) * setting_.experts + use.expert.value);
            if (slot.loading || slot.holds != wanted)
                fail("a step uses a slot that does not hold its expert");
            slot.in_step = true;
            const uint32_t request = of_seq_.at(use.seq);
            const std::vector<uint32_t> chosen =
                route(request, passes_done_[request], step.stage - 1);
            if (!std::ranges::contains(chosen, use.expert.value))
                fail("a step computes an expert that was not chosen");
            if (!computed_[use.seq].insert(use.expert.value).second)
                fail("a step computes an expert again");
        }
        for (const SeqIndex seq : step.advancing) {
            if (step.stage > 0 && computed_[seq].size() != setting_.top_k)
                fail("a request goes on without all of its experts");
        }
        step_ = step;
    }

    // --- what happens ---------------------------------------------------------------------------

    bool something_happens() {
        std::vector<std::function<void()>> events;
        for (const auto& [ticket, read] : reads_) {
            if (setting_.lose_an_arrival && ticket.value == 1)
                continue;
            events.push_back([this, t = ticket] { end_read(t, true); });
            if (errors_ > 0)
                events.push_back([this, t = ticket] { end_read(t, false); });
        }
        if (step_)
            events.push_back([this] { end_step(); });
        if (arrived_ < setting_.passes.size())
            events.push_back([this] { arrive(); });
        for (uint32_t r = 0; cancellations_ > 0 && r < arrived_; r++) {
            if (core_->progress(RequestId(r)))
                events.push_back([this, r] { cancel(r); });
        }
        // A hold ends by itself.
        if (const std::optional<Instant> deadline = core_->next_deadline())
            events.push_back([this, deadline] { now_ = std::max(now_, *deadline); });
        if (events.empty())
            return false;
        events[choices_.pick(static_cast<uint32_t>(events.size()))]();
        return true;
    }
    void end_read(Ticket ticket, bool ok) {
        const StartRead read = reads_.at(ticket);
        reads_.erase(ticket);
        Slot& slot = slots_[read.slot.value];
        slot.loading.reset();
        if (ok && !setting_.deliver_garbage)
            slot.holds = read.expert;
        errors_ -= !ok;
        handle(ReadDone{ticket, ok, milliseconds(1)});
    }
    void cancel(uint32_t request) {
        cancellations_--;
        gone_.insert(request);
        handle(RequestCancelled{RequestId(request)});
    }
    void end_step() {
        const StartStep step = *std::exchange(step_, std::nullopt);
        for (const StepUse& use : step.uses)
            slots_[use.slot.value].in_step = false;
        std::vector<std::vector<ExpertDemand>> routes(step.advancing.size());
        std::vector<std::vector<ExpertIndex>> guesses(step.advancing.size());
        std::vector<SequenceAdvanced> results;
        std::vector<uint32_t> sampled;
        for (size_t i = 0; i < step.advancing.size(); i++) {
            const SeqIndex seq = step.advancing[i];
            const uint32_t request = of_seq_.at(seq);
            computed_[seq].clear();
            if (step.stage < kLayers) {
                for (const uint32_t e : route(request, passes_done_[request], step.stage))
                    routes[i].push_back({ExpertIndex(e), 1});
            } else {
                sampled.push_back(request);
            }
            // A guess is as often wrong as right.
            for (uint32_t k = 0; step.stage + 1 < kLayers && k < setting_.top_k; k++)
                guesses[i].push_back(ExpertIndex((request + k) % setting_.experts));
            results.push_back({seq, routes[i], guesses[i]});
        }
        handle(StepDone{results, milliseconds(1)});
        for (const uint32_t request : sampled) {
            passes_done_[request]++;
            if (!gone_.contains(request))
                handle(TokenSampled{RequestId(request),
                                    passes_done_[request] == setting_.passes[request]});
        }
    }

    const Setting& setting_;
    Choices& choices_;
    std::unique_ptr<Core> core_;
    std::vector<Slot> slots_;
    uint32_t cancellations_;
    uint32_t errors_;
    Instant now_{1};
    uint32_t arrived_ = 0;
    std::map<Ticket, StartRead> reads_;
    std::optional<StartStep> step_;
    std::map<SeqIndex, uint32_t> of_seq_;              // request
    std::map<SeqIndex, std::set<uint32_t>> computed_;  // of the current layer
    std::map<uint32_t, uint32_t> passes_done_;         // by request
    std::set<uint32_t> gone_;                          // cancelled or failed
    std::optional<std::string> wrong_;
};

// Runs every course; returns what is wrong with the first that is, and counts.
std::optional<std::string> explore(const Setting& setting, uint64_t& courses) {
    Choices choices;
    do {
        courses++;
        if (std::optional<std::string> wrong = World(setting, choices).run())
            return std::format("{}, {} slots: {}; choices {}", setting.policy, setting.slots,
                               *wrong, choices.text());
    } while (choices.next_course());
    return std::nullopt;
}

void expect_all_well(const Setting& setting, uint64_t& courses) {
    const std::optional<std::string> wrong = explore(setting, courses);
    EXPECT_FALSE(wrong) << *wrong;
}

// All routes of a pass for two requests: [request][layer] are the digits of `number`.
auto route_number(uint32_t number, uint32_t experts) {
    return [number, experts](uint32_t request, uint32_t pass, uint32_t layer) {
        uint32_t digits = number;
        for (uint32_t i = 0; i < request * kLayers + layer; i++)
            digits /= experts;
        return (digits + pass) % experts;
    };
}

#ifdef BEVY_SANITIZED
constexpr uint32_t kRouteStep = 10;  // a sanitizer takes ten times as long
#else
constexpr uint32_t kRouteStep = 1;
#endif

class Exhaustive : public testing::TestWithParam<const char*> {
protected:
    // All routes of two layers with three experts, for two requests of one token.
    void explore_routes(Setting setting) {
        setting.policy = GetParam();
        for (uint32_t number = 0; number < 81; number += kRouteStep) {
            setting.route = route_number(number, 3);
            expect_all_well(setting, courses_);
        }
    }
    // Reads in flight where more of them would take too long.
    uint32_t few_reads() const {
        const bool prefetches = std::string_view(GetParam()).contains("prefetch");
        return prefetches || kRouteStep > 1 ? 1 : 2;
    }
    void TearDown() override {
        RecordProperty("courses", std::to_string(courses_));
        EXPECT_GT(courses_, 10u);
    }
    uint64_t courses_ = 0;
};

TEST_P(Exhaustive, OneExpertPerToken) {
    for (const uint32_t slots : {1, 2, 3})
        explore_routes({.slots = slots});
}

TEST_P(Exhaustive, ACancellationAnywhere) {
    for (const uint32_t slots : {1, 2})
        explore_routes({.slots = slots, .cancellations = 1});
}

TEST_P(Exhaustive, AReadThatFailsAnywhere) {
    for (const uint32_t slots : {1, 2})
        explore_routes({.slots = slots, .errors = 1});
}

TEST_P(Exhaustive, TwoTokensOfOneRequestBesideAnother) {
    explore_routes({.slots = 2, .reads = few_reads(), .passes = {2, 1}});
}

TEST_P(Exhaustive, TwoExpertsPerTokenInTwoSlots) {
    // The first shares an expert at both layers, the second at one.
    for (const uint32_t number : {17u, 99u}) {
        expect_all_well({.policy = GetParam(),
                         .experts = 4,
                         .top_k = 2,
                         .slots = 2,
                         .reads = few_reads(),
                         .route = route_number(number, 4)},
                        courses_);
    }
}

TEST_P(Exhaustive, ThreeRequests) {
    const auto route = [](uint32_t request, uint32_t, uint32_t layer) {
        return (request + request * layer) % 3;
    };
    expect_all_well({.policy = GetParam(),
                     .slots = 2,
                     .reads = few_reads(),
                     .passes = {1, 1, 1},
                     .route = route},
                    courses_);
}

INSTANTIATE_TEST_SUITE_P(Policies, Exhaustive,
                         testing::Values("bevy", "bevy-request", "lockstep", "lockstep-overlap",
                                         "bevy+prefetch-next-gate", "prefetch-next-gate"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::erase_if(name, [](char c) { return !std::isalnum(c); });
                             return name;
                         });

// The search must see what it is there for.
TEST(ExhaustiveCanary, ALostArrivalIsFound) {
    uint64_t courses = 0;
    const auto wrong =
        explore({.slots = 2, .route = route_number(12, 3), .lose_an_arrival = true}, courses);
    ASSERT_TRUE(wrong);
    EXPECT_TRUE(wrong->contains("does not end")) << *wrong;
}

TEST(ExhaustiveCanary, AWrongExpertIsFound) {
    uint64_t courses = 0;
    const auto wrong =
        explore({.slots = 2, .route = route_number(12, 3), .deliver_garbage = true}, courses);
    ASSERT_TRUE(wrong);
    EXPECT_TRUE(wrong->contains("does not hold its expert")) << *wrong;
}

}  // namespace
}  // namespace bevy
