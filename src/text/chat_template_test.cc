#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <vector>

#include "text/llama_vocabulary.h"

namespace bevy {
namespace {

std::string rendered(ChatTemplateOptions options, const std::vector<ChatMessage>& messages,
                     bool add_generation_prompt = true) {
    const auto chat = ChatTemplate::create(std::move(options));
    if (!chat)
        return "create: " + chat.error().message;
    const auto prompt = chat->render(messages, add_generation_prompt);
    return prompt ? *prompt : "render: " + prompt.error().message;
}

const std::vector<ChatMessage> kTalk = {{"system", "Be brief."}, {"user", "Hi"}};

TEST(ChatTemplate, WithoutATemplateItIsChatMl) {
    const auto chat = ChatTemplate::create({});
    ASSERT_TRUE(chat.has_value());
    EXPECT_TRUE(chat->is_fallback());
    EXPECT_EQ(rendered({}, kTalk),
              "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
              "<|im_start|>assistant\n");
    EXPECT_EQ(rendered({}, {{"user", "Hi"}}, false), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, TheDemoModelsOwnTemplateEndsAtTheAnswer) {
    const auto vocabulary =
        LlamaVocabulary::open(BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf");
    ASSERT_TRUE(vocabulary.has_value());
    EXPECT_EQ(rendered({.source = (*vocabulary)->chat_template(),
                        .bos_text = (*vocabulary)->bos_text(),
                        .eos_text = (*vocabulary)->eos_text()},
                       {{"user", "What is the capital of France?"}}),
              "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
              "<|im_start|>assistant\n");
}

TEST(ChatTemplate, LeavesOutABosThatTheTokenizerAdds) {
    const ChatTemplateOptions options = {
        .source =
            "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}{{ eos_token }}",
        .bos_text = "<s>",
        .eos_text = "</s>"};
    EXPECT_EQ(rendered(options, {{"user", "Hi"}}), "<s>[Hi]</s>");
    ChatTemplateOptions added = options;
    added.tokenizer_adds_bos = true;
    EXPECT_EQ(rendered(added, {{"user", "Hi"}}), "[Hi]</s>");
    added.tokenizer_adds_eos = true;
    EXPECT_EQ(rendered(added, {{"user", "Hi"}}), "[Hi]");
}

TEST(ChatTemplate, GivesTheSystemTextToTheUserWhereTheTemplateKnowsNoSystem) {
    const std::string ignores =
        "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% endif %}{% endfor %}";
    const std::string refuses =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}[{{ m.content }}]{% endfor %}";
    for (const std::string& source : {ignores, refuses}) {
        EXPECT_EQ(rendered({.source = source}, kTalk), "[Be brief.\nHi]");
        EXPECT_EQ(rendered({.source = source}, {{"system", "Only this."}}), "[Only this.]");
    }
}

TEST(ChatTemplate, KnowsTemplatesThatWantContentParts) {
    const std::string source =
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}"
        "[{{ part.text }}]{% endif %}{% endfor %}{% endfor %}";
    EXPECT_EQ(rendered({.source = source}, kTalk), "[Be brief.][Hi]");
}

TEST(ChatTemplate, ReportsTheTemplatesOwnWords) {
    const std::string source =
        "{% for m in messages %}{% if m.role != 'user' %}"
        "{{ raise_exception('Roles must alternate!') }}{% endif %}{{ m.content }}{% endfor %}";
    const std::string result = rendered({.source = source}, {{"user", "a"}, {"assistant", "b"}});
    EXPECT_TRUE(result.starts_with("render: ")) << result;
    EXPECT_TRUE(result.contains("Roles must alternate!")) << result;
    EXPECT_FALSE(result.contains('\n'));
}

TEST(ChatTemplate, RefusesATemplateThatDoesNotParse) {
    for (const char* source : {"{% for m in messages %}", "{{ messages", "{% if %}{% endif %}",
                               "{% endfor %}", "{{ 'x' }}{% macro %}"}) {
        const auto chat = ChatTemplate::create({.source = source});
        ASSERT_FALSE(chat.has_value()) << source;
        EXPECT_EQ(chat.error().code, ErrorCode::kUnsupported);
        EXPECT_TRUE(chat.error().message.contains("chat template"));
    }
}

TEST(ChatTemplate, RefusesAnEmptyConversation) {
    EXPECT_TRUE(rendered({}, {}).starts_with("render: "));
}

TEST(ChatTemplate, AnyContentIsLeftAsItIs) {
    const std::string odd = "{{ bos_token }} {% if %} \xFF\xC3 \0 \"quoted\" <b>";
    EXPECT_EQ(rendered({}, {{"user", odd}}, false), "<|im_start|>user\n" + odd + "<|im_end|>\n");
}

}  // namespace
}  // namespace bevy
