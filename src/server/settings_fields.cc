#include "server/settings_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <format>
#include <limits>

namespace bevy {
namespace {

constexpr int64_t kIntegerMax = 1'000'000'000;
// Whole numbers that a double holds exactly.
constexpr int64_t kSeedMax = int64_t{1} << 53;
constexpr size_t kSequenceBreakersMax = 64;

// In the order in which they are applied; the default of `samplers`.
constexpr std::array<const char*, 9> kSamplers = {
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"};

void read_sampling(JsonFields& fields, SamplingParams& p) {
    // Only the low bits count, as in llama-server: -1 is the largest seed, which means a random
    // one.
    if (const std::optional<int64_t> seed = fields.integer("seed", -kSeedMax, kSeedMax))
        p.seed = static_cast<uint32_t>(*seed);
    fields.number("temperature", p.temperature, -1000, 1000);
    fields.integer("top_k", p.top_k, -kIntegerMax, kIntegerMax);
    fields.number("top_p", p.top_p, 0, 1);
    fields.number("min_p", p.min_p, 0, 1);
    fields.number("typical_p", p.typical_p, 0, 1);
    fields.number("top_n_sigma", p.top_n_sigma, -1000, 1000);
    fields.number("xtc_probability", p.xtc_probability, 0, 1);
    fields.number("xtc_threshold", p.xtc_threshold, 0, 1);
    fields.integer("repeat_last_n", p.repeat_last_n, -1, kIntegerMax);
    fields.number("repeat_penalty", p.repeat_penalty, 0.001, 1000);
    fields.number("presence_penalty", p.presence_penalty, -1000, 1000);
    fields.number("frequency_penalty", p.frequency_penalty, -1000, 1000);
    fields.number("dry_multiplier", p.dry_multiplier, 0, 1000);
    fields.number("dry_base", p.dry_base, 0, 1000);
    fields.integer("dry_allowed_length", p.dry_allowed_length, 0, kIntegerMax);
    fields.integer("dry_penalty_last_n", p.dry_penalty_last_n, -1, kIntegerMax);
    fields.texts("dry_sequence_breakers", p.dry_sequence_breakers);
    if (p.dry_sequence_breakers.size() > kSequenceBreakersMax)
        fields.refuse("dry_sequence_breakers",
                      std::format("at most {} are possible", kSequenceBreakersMax));
    fields.boolean("ignore_eos", p.ignore_end_of_generation);
}

// Leaves out what is not named. Another order would be another distribution, so it is refused.
void read_samplers(JsonFields& fields, SamplingParams& p) {
    const Json* listed = fields.find("samplers");
    if (listed == nullptr)
        return;
    std::vector<std::string> names;
    if (listed->is_string() && listed->get<std::string>().contains(';')) {
        std::string rest = listed->get<std::string>();
        for (size_t end = 0; end != std::string::npos;) {
            end = rest.find(';');
            names.push_back(rest.substr(0, end));
            rest.erase(0, end == std::string::npos ? end : end + 1);
        }
    } else {
        fields.texts("samplers", names);
    }
    std::array<bool, kSamplers.size()> wanted = {};
    size_t next = 0;
    for (const std::string& name : names) {
        const auto found = std::find(kSamplers.begin() + next, kSamplers.end(), name);
        if (found == kSamplers.end()) {
            fields.refuse("samplers",
                          "may leave out some of penalties, dry, top_n_sigma, top_k, "
                          "typ_p, top_p, min_p, xtc, temperature, but must keep this "
                          "order; '" +
                              name + "' does not fit");
            return;
        }
        next = static_cast<size_t>(found - kSamplers.begin());
        wanted[next++] = true;
    }
    const SamplingParams off = {
        .temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_last_n = 0};
    if (!wanted[0])
        p.repeat_last_n = off.repeat_last_n;
    if (!wanted[1])
        p.dry_multiplier = off.dry_multiplier;
    if (!wanted[2])
        p.top_n_sigma = off.top_n_sigma;
    if (!wanted[3])
        p.top_k = off.top_k;
    if (!wanted[4])
        p.typical_p = off.typical_p;
    if (!wanted[5])
        p.top_p = off.top_p;
    if (!wanted[6])
        p.min_p = off.min_p;
    if (!wanted[7])
        p.xtc_probability = off.xtc_probability;
    if (!wanted[8])
        p.temperature = off.temperature;
}

// A number, or false for "never".
std::optional<float> read_bias(JsonFields& fields, const Json& json) {
    if (json.is_boolean() && !json.get<bool>())
        return -std::numeric_limits<float>::infinity();
    const double bias = json.is_number() ? json.get<double>() : std::nan("");
    if (std::abs(bias) <= 1e6)
        return static_cast<float>(bias);
    fields.refuse("logit_bias", "a bias must be a number between -1e6 and 1e6, or false");
    return std::nullopt;
}

// `key`: a token's number, or text that stands for all its tokens.
void add_bias(JsonFields& fields, const Json& key, const Json& value, const Tokenizer& tokenizer,
              std::vector<LogitBias>& biases) {
    const std::optional<float> bias = read_bias(fields, value);
    if (!bias)
        return;
    if (key.is_string()) {
        for (const TokenId token : tokenizer.encode(key.get<std::string>(), false, true))
            biases.push_back({token, *bias});
        return;
    }
    const double number = key.is_number() ? key.get<double>() : -1;
    if (number >= 0 && number < tokenizer.vocabulary_size())
        biases.push_back({static_cast<TokenId>(number), *bias});
    else
        fields.refuse("logit_bias", std::format("a token is text or a number between 0 and {}",
                                                tokenizer.vocabulary_size() - 1));
}

// [[token, bias], ...] or {"token": bias, ...}.
void read_logit_bias(JsonFields& fields, const Tokenizer& tokenizer,
                     std::vector<LogitBias>& biases) {
    const Json* field = fields.find("logit_bias");
    if (field == nullptr)
        return;
    biases.clear();
    if (field->is_object()) {
        for (const auto& [key, bias] : field->items()) {
            int32_t token = 0;
            const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
            const bool is_number = error == std::errc() && end == key.data() + key.size();
            add_bias(fields, is_number ? Json(token) : Json(key), bias, tokenizer, biases);
        }
        return;
    }
    if (!field->is_array()) {
        fields.refuse("logit_bias",
                      std::format("must be an array or an object, but is {}", json_kind(*field)));
        return;
    }
    for (const Json& pair : *field) {
        if (pair.is_array() && pair.size() == 2)
            add_bias(fields, pair[0], pair[1], tokenizer, biases);
        else
            fields.refuse("logit_bias", "must hold pairs of a token and a bias");
    }
}

void read_probabilities(JsonFields& fields, Api api, std::optional<uint32_t>& n_probs) {
    uint32_t wanted = 0;
    fields.integer("n_probs", wanted, 0, kProbabilitiesMax);
    if (wanted > 0)
        n_probs = wanted;
    if (api == Api::kLlama)
        return;
    if (api == Api::kCompletion) {
        // A number in this API; some clients send what the other one takes.
        const Json* field = fields.find("logprobs");
        if (field != nullptr && !field->is_boolean()) {
            fields.integer("logprobs", wanted, 0, kProbabilitiesMax);
            n_probs = wanted;
            return;
        }
    }
    bool logprobs = false;
    fields.boolean("logprobs", logprobs);
    uint32_t top = 20;
    if (fields.find("top_logprobs") != nullptr && !logprobs)
        fields.refuse("top_logprobs", "requires 'logprobs' to be true");
    fields.integer("top_logprobs", top, 0, kProbabilitiesMax);
    if (logprobs)
        n_probs = top;
}

void read_format(JsonFields& fields, SamplingParams& p, std::string& json_schema) {
    fields.text("grammar", p.grammar);
    const Json* schema = fields.object("json_schema");
    Json any_object = {{"type", "object"}};
    if (const Json* format = fields.object("response_format")) {
        JsonFields inner(*format);
        std::string type = "text";
        inner.text("type", type);
        if (type == "json_object") {
            schema = inner.object("schema");
            schema = schema == nullptr ? &any_object : schema;
        } else if (type == "json_schema") {
            const Json* named = inner.object("json_schema");
            const Json* found = named == nullptr ? nullptr : JsonFields(*named).find("schema");
            schema = found != nullptr ? found : inner.find("schema");
            if (schema == nullptr)
                inner.refuse("json_schema", "must hold a 'schema'");
        } else if (type != "text") {
            inner.refuse("type", "must be \"text\", \"json_object\" or \"json_schema\", but is \"" +
                                     type + "\"");
        }
        if (inner.failed()) {
            fields.refuse("response_format", inner.error().message);
            return;
        }
    }
    if (schema == nullptr || fields.failed())
        return;
    if (!p.grammar.empty()) {
        fields.refuse("grammar", "can't be combined with a JSON schema");
        return;
    }
    json_schema = json_text(*schema);
}

// Fields of llama-server that Bevy knows but can't honour, with the values that change nothing.
void refuse_unsupported(JsonFields& fields) {
    const auto must_be = [&](const char* name, double neutral) {
        const Json* field = fields.find(name);
        if (field != nullptr && !(field->is_number() && field->get<double>() == neutral))
            fields.refuse(name, std::format("only {:g} is supported", neutral));
    };
    must_be("mirostat", 0);
    must_be("dynatemp_range", 0);
    const Json* adaptive = fields.find("adaptive_target");
    if (adaptive != nullptr && !(adaptive->is_number() && adaptive->get<double>() < 0))
        fields.refuse("adaptive_target", "only negative numbers, which mean off, are supported");
    bool post_sampling = false;
    fields.boolean("post_sampling_probs", post_sampling);
    if (post_sampling)
        fields.refuse("post_sampling_probs", "only false is supported");
    const Json* lora = fields.find("lora");
    if (lora != nullptr && !lora->empty())
        fields.refuse("lora", "adapters are not supported");
}

void read_reasoning(JsonFields& fields, ReasoningFormat& reasoning) {
    std::string format;
    fields.text("reasoning_format", format);
    if (format == "none")
        reasoning = ReasoningFormat::kInline;
    else if (format == "auto" || format == "deepseek")
        reasoning = ReasoningFormat::kSeparate;
    else if (!format.empty())
        fields.refuse("reasoning_format", "must be \"none\", \"auto\" or \"deepseek\"");
}

}  // namespace

ApiResult<GenerationSettings> read_settings(const Json& body, Api api,
                                            const GenerationSettings& defaults,
                                            const Tokenizer& tokenizer) {
    GenerationSettings s = defaults;
    JsonFields fields(body);
    read_sampling(fields, s.sampling);
    read_samplers(fields, s.sampling);
    read_logit_bias(fields, tokenizer, s.sampling.logit_bias);
    read_probabilities(fields, api, s.sampling.n_probs);
    read_format(fields, s.sampling, s.json_schema);
    for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"})
        fields.integer(name, s.predict, -1, kIntegerMax);
    fields.texts("stop", s.stop);
    std::erase(s.stop, std::string());
    if (s.stop.size() > kStopStringsMax)
        fields.refuse("stop", std::format("at most {} are possible", kStopStringsMax));
    fields.integer("n", s.choices, 1, kChoicesMax);
    fields.boolean("stream", s.stream);
    if (const Json* options = fields.object("stream_options")) {
        JsonFields inner(*options);
        inner.boolean("include_usage", s.include_usage);
        if (inner.failed())
            fields.refuse("stream_options", inner.error().message);
    }
    fields.boolean("timings_per_token", s.timings_per_token);
    fields.boolean("cache_prompt", s.cache_prompt);
    fields.boolean("return_tokens", s.return_tokens);
    read_reasoning(fields, s.reasoning);
    refuse_unsupported(fields);
    if (fields.failed())
        return std::unexpected(fields.error());
    if (Status status = validate(s.sampling); !status)
        return std::unexpected(api_error(status.error()));
    return s;
}

Json settings_json(const GenerationSettings& s) {
    const SamplingParams& p = s.sampling;
    Json biases = Json::array();
    for (const LogitBias& bias : p.logit_bias) {
        // JSON has no infinity; libllama writes null too.
        biases.push_back({{"bias", bias.bias}, {"token", bias.token}});
    }
    Json json = {{"seed", p.seed},
                 {"temperature", p.temperature},
                 {"dynatemp_range", 0.0},
                 {"dynatemp_exponent", 1.0},
                 {"top_k", p.top_k},
                 {"top_p", p.top_p},
                 {"min_p", p.min_p},
                 {"top_n_sigma", p.top_n_sigma},
                 {"xtc_probability", p.xtc_probability},
                 {"xtc_threshold", p.xtc_threshold},
                 {"typical_p", p.typical_p},
                 {"repeat_last_n", p.repeat_last_n},
                 {"repeat_penalty", p.repeat_penalty},
                 {"presence_penalty", p.presence_penalty},
                 {"frequency_penalty", p.frequency_penalty},
                 {"dry_multiplier", p.dry_multiplier},
                 {"dry_base", p.dry_base},
                 {"dry_allowed_length", p.dry_allowed_length},
                 {"dry_penalty_last_n", p.dry_penalty_last_n},
                 {"dry_sequence_breakers", p.dry_sequence_breakers},
                 {"mirostat", 0},
                 {"mirostat_tau", 5.0},
                 {"mirostat_eta", 0.1f},
                 {"adaptive_target", -1.0},
                 {"adaptive_decay", 0.9f},
                 {"stop", s.stop},
                 {"max_tokens", s.predict},
                 {"n_predict", s.predict},
                 {"n_keep", 0},
                 {"n_discard", 0},
                 {"ignore_eos", p.ignore_end_of_generation},
                 {"stream", s.stream},
                 {"logit_bias", std::move(biases)},
                 {"n_probs", p.n_probs.value_or(0)},
                 {"min_keep", 0},
                 {"grammar", p.grammar}};
    Json rest = {
        {"grammar_lazy", false},
        {"grammar_triggers", Json::array()},
        {"preserved_tokens", Json::array()},
        {"chat_format", "Content-only"},
        {"reasoning_format", s.reasoning == ReasoningFormat::kInline ? "none" : "deepseek"},
        {"reasoning_in_content", false},
        {"generation_prompt", ""},
        {"samplers", kSamplers},
        {"speculative.types", "none"},
        {"timings_per_token", s.timings_per_token},
        {"post_sampling_probs", false},
        {"backend_sampling", false},
        {"lora", Json::array()}};
    json.update(rest);
    return json;
}

Json short_settings_json(const GenerationSettings& settings) {
    Json json = settings_json(settings);
    for (const char* name : {"dry_sequence_breakers", "stop", "logit_bias", "grammar",
                             "grammar_lazy", "grammar_triggers", "preserved_tokens"})
        json.erase(name);
    return json;
}

}  // namespace bevy
