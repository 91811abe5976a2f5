// Taking an answer apart: ChatOutputParser of chat_format.h.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "text/chat_format.h"
#include "text/chat_syntax.h"

namespace bevy {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Text whose white space at the beginning and at the end is not wanted.
class TrimmedText {
public:
    void begin() {
        at_begin_ = true;
        held_.clear();
    }
    // Appends to `target` what is certain not to be at the end.
    void push(std::string_view text, std::string& target) {
        if (at_begin_) {
            text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
            at_begin_ = text.empty();
        }
        const size_t last = text.find_last_not_of(kSpace);
        if (last == std::string_view::npos) {
            held_ += text;
            return;
        }
        target += std::exchange(held_, {});
        target += text.substr(0, last + 1);
        held_ = text.substr(last + 1);
    }
    // White space that was not the end after all.
    std::string release() { return std::exchange(held_, {}); }

private:
    bool at_begin_ = true;
    std::string held_;
};

// to=functions.NAME in a header; empty: none.
std::string recipient_of(const std::string& header) {
    constexpr std::string_view kTo = "to=";
    const size_t begin = header.find(kTo);
    if (begin == std::string::npos)
        return {};
    std::string name = header.substr(begin + kTo.size());
    name.resize(std::min(name.find_first_of(" \t\r\n<"), name.size()));
    constexpr std::string_view kFunctions = "functions.";
    return name.starts_with(kFunctions) ? name.substr(kFunctions.size()) : std::string();
}

}  // namespace

struct ChatOutputParser::Impl {
    enum class State { kBegin, kThoughts, kContent, kCall, kHeader, kChannel };

    explicit Impl(const ChatOutputOptions& wanted) : options(wanted) {
        if (is_harmony())
            state = State::kHeader;
        else if (!options.format.thinks || !options.separate_reasoning)
            state = State::kContent;
        else
            state = options.begins_thinking ? State::kThoughts : State::kBegin;
        keeps_space = state == State::kContent;
    }

    bool is_harmony() const { return options.format.syntax == ChatSyntax::kHarmony; }
    bool has_calls() const { return options.parse_tools && options.format.knows_tools(); }

    // One transition; false: more text is needed.
    bool advance(ChatDelta& delta) {
        switch (state) {
            case State::kBegin:
                return begin();
            case State::kThoughts:
                return thoughts(delta);
            case State::kContent:
                return content(delta);
            case State::kCall:
                return call(delta);
            case State::kHeader:
                return header();
            case State::kChannel:
                return channel(delta);
        }
        return false;
    }

    // Thoughts may come, behind white space.
    bool begin() {
        opening += scanner.rest();
        const size_t first = opening.find_first_not_of(kSpace);
        constexpr std::string_view kThink = "<think>";
        if (first == std::string::npos)
            return false;
        const std::string_view text = std::string_view(opening).substr(first);
        if (text.size() < kThink.size() && kThink.starts_with(text))
            return false;
        if (text.starts_with(kThink)) {
            scanner.push(text.substr(kThink.size()));
            state = State::kThoughts;
        } else {
            scanner.push(opening);
            state = State::kContent;
            keeps_space = true;
        }
        opening.clear();
        return true;
    }

    bool thoughts(ChatDelta& delta) {
        static constexpr std::array<std::string_view, 1> kMarks = {"</think>"};
        const MarkScanner::Found found = scanner.next(kMarks);
        reasoning.push(found.before, delta.reasoning);
        if (!found.mark)
            return false;
        state = State::kContent;
        return true;
    }

    void add_content(std::string_view text, ChatDelta& delta) {
        if (keeps_space && !has_calls()) {
            delta.content += text;
            return;
        }
        if (keeps_space && !text.empty()) {
            // Only what comes before the first word is kept as it is.
            const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
            delta.content += text.substr(0, first);
            text.remove_prefix(first);
            keeps_space = text.empty();
        }
        answer.push(text, delta.content);
    }

    bool content(ChatDelta& delta) {
        static constexpr std::array<std::string_view, 1> kMarks = {"<tool_call>"};
        const MarkScanner::Found found =
            has_calls() ? scanner.next(kMarks) : MarkScanner::Found{scanner.rest(), std::nullopt};
        add_content(found.before, delta);
        if (!found.mark)
            return false;
        state = State::kCall;
        return true;
    }

    bool call(ChatDelta& delta) {
        static constexpr std::array<std::string_view, 1> kMarks = {"</tool_call>"};
        const MarkScanner::Found found = scanner.next(kMarks);
        call_text += found.before;
        if (!found.mark)
            return false;
        end_call(delta, true);
        state = State::kContent;
        return true;
    }

    void end_call(ChatDelta& delta, bool closed) {
        const std::string text = std::exchange(call_text, {});
        std::optional<ToolCall> read = options.format.syntax == ChatSyntax::kTags
                                           ? read_tag_call(text, options.tools)
                                           : read_hermes_call(text);
        if (read) {
            answer.begin();
            delta.tool_calls.push_back(std::move(*read));
        } else {
            delta.content += answer.release();
            add_content("<tool_call>" + text + (closed ? "</tool_call>" : ""), delta);
        }
    }

    // Between messages: <|start|>assistant<|channel|>analysis<|message|>.
    bool header() {
        static constexpr std::array<std::string_view, 1> kMarks = {"<|message|>"};
        if (first_message) {
            opening += scanner.rest();
            const size_t first = opening.find_first_not_of(kSpace);
            if (first == std::string::npos)
                return false;
            first_message = false;
            scanner.push(opening);
            // A model that forgets its channels writes an answer.
            if (opening[first] != '<')
                state = State::kChannel;
            opening.clear();
            return true;
        }
        const MarkScanner::Found found = scanner.next(kMarks);
        header_text += found.before;
        if (!found.mark)
            return false;
        recipient = has_calls() ? recipient_of(header_text) : std::string();
        is_analysis = header_text.contains("analysis") && recipient.empty();
        header_text.clear();
        state = State::kChannel;
        return true;
    }

    bool channel(ChatDelta& delta) {
        static constexpr std::array<std::string_view, 4> kMarks = {"<|end|>", "<|return|>",
                                                                   "<|call|>", "<|start|>"};
        const MarkScanner::Found found = scanner.next(kMarks);
        if (!recipient.empty())
            call_text += found.before;
        else if (is_analysis)
            delta.reasoning += found.before;
        else
            delta.content += found.before;
        if (!found.mark)
            return false;
        end_channel(delta);
        state = State::kHeader;
        return true;
    }

    void end_channel(ChatDelta& delta) {
        if (recipient.empty())
            return;
        const std::string text = std::exchange(call_text, {});
        if (std::optional<std::string> arguments = read_arguments(text))
            delta.tool_calls.push_back({.name = recipient, .arguments = std::move(*arguments)});
        else
            delta.content += text;
        recipient.clear();
    }

    ChatDelta finish() {
        ChatDelta delta;
        while (advance(delta)) {
        }
        const std::string rest = scanner.rest();
        switch (state) {
            case State::kBegin:
                delta.content += std::exchange(opening, {}) + rest;
                break;
            case State::kThoughts:
                reasoning.push(rest, delta.reasoning);
                break;
            case State::kContent:
                add_content(rest, delta);
                break;
            case State::kCall:
                call_text += rest;
                end_call(delta, false);
                break;
            case State::kHeader:
                delta.content += std::exchange(opening, {});  // white space, and nothing else came
                break;
            case State::kChannel:
                if (!recipient.empty())
                    call_text += rest;
                else
                    (is_analysis ? delta.reasoning : delta.content) += rest;
                end_channel(delta);
                break;
        }
        if (!called_any)
            delta.content += answer.release();
        return delta;
    }

    ChatDelta note(ChatDelta delta) {
        called_any = called_any || !delta.tool_calls.empty();
        return delta;
    }

    const ChatOutputOptions options;
    State state = State::kContent;
    MarkScanner scanner;
    std::string opening;       // white space, and what may begin thoughts or channels
    TrimmedText reasoning;     // kThoughts
    TrimmedText answer;        // content around calls
    bool keeps_space = false;  // the content's beginning is the answer's, not what follows thoughts
    bool called_any = false;
    std::string call_text;
    std::string header_text;
    std::string recipient;  // of the current channel's message; empty: none
    bool is_analysis = false;
    bool first_message = true;
};

ChatOutputParser::ChatOutputParser(const ChatOutputOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
ChatOutputParser::~ChatOutputParser() = default;
ChatOutputParser::ChatOutputParser(ChatOutputParser&&) noexcept = default;
ChatOutputParser& ChatOutputParser::operator=(ChatOutputParser&&) noexcept = default;

ChatDelta ChatOutputParser::push(std::string_view text) {
    ChatDelta delta;
    impl_->scanner.push(text);
    while (impl_->advance(delta)) {
    }
    return impl_->note(std::move(delta));
}

ChatDelta ChatOutputParser::finish() {
    return impl_->finish();
}

}  // namespace bevy
