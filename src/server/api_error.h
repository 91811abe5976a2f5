// What went wrong with a request, as clients of OpenAI's API and of llama-server expect to read it.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>

#include "base/error.h"
#include "server/http_types.h"

namespace bevy {

struct ApiError {
    int status = 500;
    std::string type = "server_error";
    std::string message;
    std::optional<uint32_t> retry_after_s;
    // Of a prompt that is longer than the context.
    std::optional<uint64_t> tokens_prompt;
    std::optional<uint64_t> tokens_context;
};

template <class T>
using ApiResult = std::expected<T, ApiError>;

// 400: the client can repair it. The message names the field and what it may be.
ApiError invalid_request(std::string message);
// 401.
ApiError wrong_api_key();
// 404.
ApiError not_found(std::string message = "File Not Found");
// 501: this server does not do that.
ApiError not_supported(std::string message);
// 503: later perhaps.
ApiError unavailable(std::string message, std::optional<uint32_t> retry_after_s = std::nullopt);
// 500.
ApiError server_error(std::string message);
// 400: a prompt that the context can't hold.
ApiError prompt_too_long(uint64_t tokens_prompt, uint64_t tokens_context);
// What fits an error of the lower layers. Its hint is part of the message.
ApiError api_error(const Error& error);
// What fits a status that the HTTP library chose.
ApiError http_error(int status);

// {"error":{"code":...,"message":...,"type":...}}
std::string error_json(const ApiError& error);
HttpReply error_reply(const ApiError& error);

}  // namespace bevy
