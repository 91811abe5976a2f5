#include "server/api_error.h"

#include <format>
#include <nlohmann/json.hpp>
#include <utility>

namespace bevy {

ApiError invalid_request(std::string message) {
    return {.status = 400, .type = "invalid_request_error", .message = std::move(message)};
}

ApiError wrong_api_key() {
    return {.status = 401, .type = "authentication_error", .message = "Invalid API Key"};
}

ApiError not_found(std::string message) {
    return {.status = 404, .type = "not_found_error", .message = std::move(message)};
}

ApiError not_supported(std::string message) {
    return {.status = 501, .type = "not_supported_error", .message = std::move(message)};
}

ApiError unavailable(std::string message, std::optional<uint32_t> retry_after_s) {
    return {.status = 503,
            .type = "unavailable_error",
            .message = std::move(message),
            .retry_after_s = retry_after_s};
}

ApiError server_error(std::string message) {
    return {.status = 500, .type = "server_error", .message = std::move(message)};
}

ApiError prompt_too_long(uint64_t tokens_prompt, uint64_t tokens_context) {
    return {.status = 400,
            .type = "exceed_context_size_error",
            .message = std::format("the prompt has {} tokens, but the context of a request holds "
                                   "{}, of which at least one is for the reply",
                                   tokens_prompt, tokens_context),
            .tokens_prompt = tokens_prompt,
            .tokens_context = tokens_context};
}

ApiError api_error(const Error& error) {
    const std::string message =
        error.hint.empty() ? error.message : error.message + "; " + error.hint;
    switch (error.code) {
        case ErrorCode::kInvalidArgument:
        case ErrorCode::kBudget:
            return invalid_request(message);
        case ErrorCode::kUnsupported:
            return not_supported(message);
        case ErrorCode::kCancelled:
            return unavailable(message);
        case ErrorCode::kQueueFull:
            return unavailable(message, 1);
        case ErrorCode::kNotFound:
        case ErrorCode::kCorruptFile:
        case ErrorCode::kIo:
            break;
    }
    return server_error(message);
}

ApiError http_error(int status) {
    switch (status) {
        case 404:
            return not_found();
        case 413:
            return {.status = status,
                    .type = "invalid_request_error",
                    .message = "the body of the request is too large"};
        case 414:
            return {.status = status,
                    .type = "invalid_request_error",
                    .message = "the address of the request is too long"};
        default:
            break;
    }
    if (status >= 400 && status < 500)
        return {.status = status,
                .type = "invalid_request_error",
                .message = std::format("malformed request (HTTP status {})", status)};
    return {.status = status, .message = std::format("HTTP status {}", status)};
}

std::string error_json(const ApiError& error) {
    using Json = nlohmann::ordered_json;
    Json body = {{"code", error.status}, {"message", error.message}, {"type", error.type}};
    if (error.tokens_prompt)
        body["n_prompt_tokens"] = *error.tokens_prompt;
    if (error.tokens_context)
        body["n_ctx"] = *error.tokens_context;
    return Json({{"error", std::move(body)}})
        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(const ApiError& error) {
    HttpReply reply;
    reply.status = error.status;
    reply.body = error_json(error);
    if (error.retry_after_s)
        reply.headers.emplace_back("Retry-After", std::to_string(*error.retry_after_s));
    return reply;
}

}  // namespace bevy
