#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/files/json_file.h"
#include "base/json.h"
#include "base/text.h"

namespace orrery::tokenizer {
namespace {

constexpr int64_t most_bytes = int64_t{1} << 30;

std::string path_of(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(path, ignored) ? (std::filesystem::path(path) / "tokenizer.json").string()
                                                        : path;
}

/// Describes a tokenizer of another format in the folder of `file`, for the message that `file` is missing; "": none.
std::string beside(const std::string& file) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    for (const char* name : {"tokenizer.model", "vocab.json", "spiece.model", "vocab.txt"}) {
        std::error_code ignored;
        if (std::filesystem::exists(folder / name, ignored))
            return fmt::format(
                "{} was found: transformers' AutoTokenizer converts it to a tokenizer.json "
                "(save_pretrained), if it is a BPE tokenizer",
                name);
    }
    return "";
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
    const std::string file = path_of(path);
    return std::make_shared<const Tokenizer>(read_json(file, most_bytes, beside(file)), file);
}

Tokenizer::Tokenizer(const Json& json, const std::string& file) {
    const Field root(json, "", file);
    root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
               "decoder", "model"});
    if (root.has("version") && root.at("version").text() != "1.0")
        root.at("version").refuse(fmt::format("is {}, expected \"1.0\"", quote(root.at("version").text())));
    for (const char* key : {"truncation", "padding"})
        if (root.has(key)) root.at(key).refuse("is set, but truncation and padding are unsupported; set it to null");
    if (root.has("normalizer")) normalizer_ = Normalizer(root.at("normalizer"));
    if (root.has("pre_tokenizer")) pre_tokenizer_ = PreTokenizer(root.at("pre_tokenizer"));
    model_ = std::make_unique<BpeModel>(root.at("model"));
    if (pre_tokenizer_.in_bytes() && !model_->take_bytes()) pre_tokenizer_.write_alphabet();
    if (root.has("added_tokens")) read_added(root.at("added_tokens"));
    fill_names();
    int templates = 0;
    if (root.has("post_processor")) read_post_processor(root.at("post_processor"), templates);
    if (root.has("decoder")) decoders_ = read_decoders(root.at("decoder"));
}

void Tokenizer::read_added(const Field& field) {
    const auto known = [&](const std::string& token) { return model_->id_of(token); };
    tokens_ = read_added_tokens(field, normalizer_, known, model_->count());
    for (const AddedToken& token : tokens_) {
        (token.normalized ? normalized_ : raw_).add(&token);
        by_content_.emplace(token.content, &token);
    }
}

void Tokenizer::fill_names() {
    const std::vector<std::string>& own = model_->tokens();
    size_t count = own.size();
    for (const AddedToken& token : tokens_) count = std::max(count, static_cast<size_t>(token.id) + 1);
    names_.assign(count, nullptr);
    by_id_.assign(count, nullptr);
    for (size_t id = 0; id < own.size(); ++id)
        if (model_->has(static_cast<int32_t>(id))) names_[id] = &own[id];
    for (const AddedToken& token : tokens_) {
        names_[static_cast<size_t>(token.id)] = &token.content;
        by_id_[static_cast<size_t>(token.id)] = &token;
    }
}

void Tokenizer::read_post_processor(const Field& field, int& templates) {
    const std::string& type = field.at("type").text();
    if (type == "Sequence") {
        field.only({"type", "processors"});
        const std::vector<Field> all = field.at("processors").items();
        for (const Field& one : all) read_post_processor(one, templates);
    } else if (type == "ByteLevel") {
        field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // keys that only affect tokens' offsets
    } else if (type == "TemplateProcessing") {
        if (++templates > 1) field.refuse("is a second TemplateProcessing; only one is supported");
        read_template(field);
    } else {
        field.refuse_type("post-processors: ByteLevel, Sequence, TemplateProcessing");
    }
}

/// Reads the template of a single text: special tokens, the text once, special tokens.
void Tokenizer::read_template(const Field& field) {
    field.only({"type", "single", "pair", "special_tokens"});
    bool behind = false;
    const std::vector<Field> pieces = field.at("single").items();
    for (const Field& piece : pieces) {
        piece.only({"Sequence", "SpecialToken"});
        if (piece.has("Sequence")) {
            const Field id = piece.at("Sequence").at("id");
            if (id.text() != "A") id.refuse(fmt::format("is {}, but a single text is A", quote(id.text())));
            if (behind) piece.refuse("has the text a second time");
            behind = true;
            continue;
        }
        const Field id = piece.at("SpecialToken").at("id");
        const Field special = field.at("special_tokens").at(id.text());
        const std::vector<Field> ids = special.at("ids").items();
        for (const Field& each : ids) {
            if (!has(each.whole())) each.refuse(fmt::format("is {}, which is not the id of a token", each.whole()));
            (behind ? behind_ : before_).push_back(static_cast<int32_t>(each.whole()));
        }
    }
    if (!behind) field.at("single").refuse("is missing the entry for the text, { \"Sequence\": { \"id\": \"A\" } }");
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
    const auto found = by_content_.find(token);
    return found == by_content_.end() ? model_->id_of(token) : found->second->id;
}

bool Tokenizer::has(int64_t id) const {
    return id >= 0 && id < vocabulary() && names_[static_cast<size_t>(id)] != nullptr;
}

const std::string& Tokenizer::token_of(int64_t id) const {
    static const std::string none;
    return has(id) ? *names_[static_cast<size_t>(id)] : none;
}

bool Tokenizer::is_special(int64_t id) const {
    const AddedToken* token = has(id) ? by_id_[static_cast<size_t>(id)] : nullptr;
    return token && token->special;
}

const std::string& Tokenizer::spelling(int64_t id) const {
    if (!has(id))
        throw Error(fmt::format("decode: unknown token id {}; the tokenizer has ids below {}", id, vocabulary()));
    const AddedToken* token = by_id_[static_cast<size_t>(id)];
    return token ? token->pattern : *names_[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special, Unreadable bytes) const {
    std::string text;
    const std::unique_ptr<DecodeStage> stages = make_stages(decoders_, text, bytes);
    for (const int32_t id : ids) {
        const std::string& token = spelling(id);
        if (!(skip_special && skipped(token))) stages->take(token);
    }
    stages->finish();
    return text;
}

/// Compares spellings, like Python's `tokenizers`. The spelling of a normalized token may differ from its content.
bool Tokenizer::skipped(std::string_view spelling) const {
    const auto found = by_content_.find(spelling);
    return found != by_content_.end() && found->second->special;
}

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(skip_special),
      stages_(make_stages(tokenizer_->decoders(), out_)) {}

TextStream::~TextStream() = default;

std::string TextStream::put(int32_t id) {
    out_.clear();
    const std::string& token = tokenizer_->spelling(id);
    if (!(skip_special_ && tokenizer_->skipped(token))) stages_->take(token);
    return std::exchange(out_, {});
}

std::string TextStream::finish() {
    out_.clear();
    stages_->finish();
    return std::exchange(out_, {});
}

}  // namespace orrery::tokenizer
