#include "server/prompt_tokens.h"

#include <algorithm>
#include <format>
#include <utility>

#include "text/detokenizer.h"

namespace bevy {

ApiResult<std::vector<TokenId>> read_tokens(const Json& json, const Tokenizer& tokenizer,
                                            bool add_special, bool parse_special) {
    if (json.is_string())
        return tokenizer.encode(json.get<std::string>(), add_special, parse_special);
    if (!json.is_array())
        return std::unexpected(invalid_request(
            std::format("A prompt must be text or an array of text and token ids, but is {}",
                        json_kind(json))));
    std::vector<TokenId> tokens;
    bool first = true;
    for (const Json& part : json) {
        if (part.is_string()) {
            const std::vector<TokenId> more =
                tokenizer.encode(part.get<std::string>(), add_special && first, parse_special);
            tokens.insert(tokens.end(), more.begin(), more.end());
        } else {
            const double number = part.is_number_integer() ? part.get<double>() : -1;
            if (!(number >= 0 && number < tokenizer.vocabulary_size()))
                return std::unexpected(invalid_request(std::format(
                    "Prompt contains invalid tokens: a token id must be between 0 and {}",
                    tokenizer.vocabulary_size() - 1)));
            tokens.push_back(static_cast<TokenId>(number));
        }
        first = false;
    }
    return tokens;
}

ApiResult<std::vector<std::vector<TokenId>>> read_prompts(const Json& body,
                                                          const Tokenizer& tokenizer) {
    const Json* prompt = JsonFields(body).find("prompt");
    if (prompt == nullptr)
        return std::unexpected(invalid_request("'prompt' is required"));
    // An array with a number in it is one prompt; of texts and arrays only, it is a list of them.
    const bool many = prompt->is_array() && !prompt->empty() &&
                      std::ranges::none_of(*prompt, [](const Json& p) { return p.is_number(); });
    std::vector<std::vector<TokenId>> prompts;
    const auto add = [&](const Json& one) -> ApiResult<void> {
        ApiResult<std::vector<TokenId>> tokens = read_tokens(one, tokenizer, true, true);
        if (!tokens)
            return std::unexpected(tokens.error());
        prompts.push_back(std::move(*tokens));
        return {};
    };
    if (!many) {
        if (ApiResult<void> added = add(*prompt); !added)
            return std::unexpected(added.error());
        return prompts;
    }
    if (prompt->size() > kPromptsMax)
        return std::unexpected(
            invalid_request(std::format("Field 'prompt': at most {} are possible", kPromptsMax)));
    for (const Json& one : *prompt) {
        if (ApiResult<void> added = add(one); !added)
            return std::unexpected(added.error());
    }
    return prompts;
}

std::string text_of(const std::vector<TokenId>& tokens, const Tokenizer& tokenizer) {
    std::string text;
    Utf8Repair repair;
    for (const TokenId token : tokens)
        repair.push(tokenizer.piece(token, true), text);
    repair.finish(text);
    return text;
}

}  // namespace bevy
