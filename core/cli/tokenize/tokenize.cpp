#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "base/processors.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/tokenize/documents.h"
#include "run/data/data.h"
#include "run/data/token_pair.h"
#include "tokenizer/encoder.h"
#include "tokenizer/folder.h"

namespace orrery {
namespace {

using tokenizer::Around;
using tokenizer::Encoder;
using tokenizer::Encoders;
using tokenizer::Tokenizer;

struct Ids {
    std::vector<int32_t> ids;
    int64_t ignored = 0;
    std::string problem = {};  ///< why the document cannot be read; "": it can
};

/// Returns the token to write after each document: that of --end, or the tokenizer's end of text.
int32_t end_of_document(const TokenizeCommand& command, const Tokenizer& tokenizer) {
    std::string token = command.end, from = "--end";
    if (token.empty()) {
        const tokenizer::NamedToken named = tokenizer::named_token(command.tokenizer, "eos_token");
        token = named.token;
        from = named.file;
    }
    if (token.empty()) {
        for (const std::string& usual : tokenizer::usual_ends())
            if (const auto id = tokenizer.id_of(usual)) return *id;
        throw Error(
            fmt::format("tokenize: {} has no tokenizer_config.json that names an eos_token\n  name the token "
                        "between documents with --end TOKEN",
                        command.tokenizer));
    }
    const auto id = tokenizer.id_of(token);
    if (!id)
        throw Error(fmt::format("tokenize: {} names the token {}, which is not in the tokenizer", from, quote(token)));
    return *id;
}

class Tokenizing {
public:
    explicit Tokenizing(const TokenizeCommand& command) : command_(command) {
        int threads = command.threads;
        if (threads == 0) threads = static_cast<int>(usable_processors());
        if (!command.tokenizer.empty()) {
            tokenizer_ = Tokenizer::load(command.tokenizer);
            end_ = end_of_document(command, *tokenizer_);
            // The tokenizer's template already appends the end token to each document.
            if (const auto& behind = tokenizer_->behind(); !behind.empty() && behind.back() == *end_) end_.reset();
            encoders_.emplace(tokenizer_, threads);
        }
    }

    /// Returns the bytes per token id in the written file: 2 if all ids fit, by Megatron's rule, else 4.
    int token_bytes() const {
        constexpr int64_t most_short = 65500;
        return !tokenizer_ || tokenizer_->vocabulary() < most_short ? 2 : 4;
    }
    int64_t vocabulary() const { return tokenizer_ ? tokenizer_->vocabulary() : 256; }
    std::vector<std::string> notes() const {
        return tokenizer_ ? tokenizer::template_notes(command_.tokenizer, *tokenizer_) : std::vector<std::string>();
    }
    tokenizer::EncodeCounts counts() const { return encoders_ ? encoders_->counts() : tokenizer::EncodeCounts{}; }

    std::vector<Ids> encode(const std::vector<Document>& documents) {
        std::vector<Ids> all(documents.size());
        const auto one = [&](Encoder* encoder, size_t i) {
            try {
                all[i] = encode(documents[i], encoder);
            } catch (const Error& error) {
                if (!command_.skip_bad) throw;
                all[i].problem = error.what();
            }
        };
        if (encoders_)
            encoders_->each(documents.size(), [&](Encoder& encoder, size_t i) { one(&encoder, i); });
        else
            for (size_t i = 0; i < documents.size(); ++i) one(nullptr, i);
        return all;
    }

private:
    Ids encode(const Document& document, Encoder* encoder) const {
        Ids out;
        if (!command_.lines()) {
            add(document.text, Around::both, document.where, encoder, out.ids);
        } else {
            const Json json = parsed(document);
            if (!command_.field.empty()) {
                add(field(json, command_.field, document.where), Around::both, document.where, encoder, out.ids);
            } else {
                add(field(json, command_.prompt, document.where), Around::begin, document.where, encoder, out.ids);
                out.ignored = static_cast<int64_t>(out.ids.size());
                add(field(json, command_.completion, document.where), Around::end, document.where, encoder, out.ids);
            }
        }
        if (end_) out.ids.push_back(*end_);
        return out;
    }

    Json parsed(const Document& document) const {
        try {
            return parse_json(document.text, document.where);
        } catch (const Error& error) {
            if (command_.skip_bad) throw;
            throw Error(error.what() + std::string("\n  --skip-bad leaves such lines out"), error.fault());
        }
    }

    static const std::string& field(const Json& json, const std::string& key, const Origin& where) {
        if (!json.is_object()) throw Error(where, "is not a JSON object");
        const auto found = json.find(key);
        if (found == json.end()) {
            std::vector<std::string> keys;
            for (const auto& [name, value] : json.items()) keys.push_back(quote(name));
            throw Error(where,
                        fmt::format("has no key {}; it has {}\n  name the key of the texts: --field, or --prompt "
                                    "and --completion",
                                    quote(key), keys.empty() ? "none" : join_few(keys, 8)));
        }
        if (!found->is_string()) throw Error(where, fmt::format("the value of key {} is not a string", quote(key)));
        return found->get_ref<const std::string&>();
    }

    static void add(const std::string& text, Around around, const Origin& where, Encoder* encoder,
                    std::vector<int32_t>& ids) {
        if (!encoder) {
            for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
            return;
        }
        try {
            encoder->encode(text, around, ids);
        } catch (const Error& error) {
            throw Error(where, error.what(), error.fault());
        }
    }

    const TokenizeCommand& command_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::optional<Encoders> encoders_;
    std::optional<int32_t> end_;
};

int tokenize_bytes_of(const TokenizeCommand& command) {
    if (command.files.size() != 2)
        throw Error("tokenize: expected a text file and the token file to write, or text files with -o NAME");
    const std::string &text = command.files[0], &bin = command.files[1];
    std::error_code ignored;
    if (std::filesystem::equivalent(text, bin, ignored))
        throw Error(fmt::format(
            "tokenize: {} and {} are the same file; its text would be overwritten\n  name another token file", text,
            bin));
    const int64_t count = tokenize_bytes(text, bin, command.token_bytes);
    std::printf("%s: %lld tokens of %d bytes, one per byte of text, vocabulary 256\n", bin.c_str(),
                static_cast<long long>(count), command.token_bytes);
    return 0;
}

void refuse_odd(const TokenizeCommand& command) {
    if (command.prompt.empty() != command.completion.empty())
        throw Error("tokenize: --prompt and --completion must be given together");
    if (!command.prompt.empty() && !command.field.empty())
        throw Error("tokenize: --field cannot be combined with --prompt and --completion; give one or the other");
    if (command.tokenizer.empty() && !command.end.empty()) throw Error("tokenize: --end needs --tokenizer");
    if (command.skip_bad && command.out.empty()) throw Error("tokenize: --skip-bad needs -o NAME");
}

void refuse_own_text(const TokenizeCommand& command) {
    for (const std::string& file : command.files)
        for (const char* ending : {".bin", ".idx", ".mask"}) {
            std::error_code ignored;
            if (std::filesystem::equivalent(file, command.out + ending, ignored))
                throw Error(fmt::format(
                    "tokenize: the tokens would overwrite the text file {}\n  name another file with -o", file));
        }
}

}  // namespace

int tokenize_command(const TokenizeCommand& command) {
    refuse_odd(command);
    if (command.out.empty()) {
        if (!command.tokenizer.empty() || command.lines())
            throw Error("tokenize: -o NAME is missing; it names the files to write, NAME.bin and NAME.idx");
        return tokenize_bytes_of(command);
    }
    Tokenizing tokenizing(command);
    Documents documents(command.files, command.lines());
    refuse_own_text(command);
    TokenPair pair(command.out, tokenizing.token_bytes(), !command.prompt.empty());
    int64_t skipped = 0;
    for (std::vector<Document> batch; documents.next(batch);) {
        const std::vector<Ids> encoded = tokenizing.encode(batch);
        for (const Ids& each : encoded)
            if (each.problem.empty())
                pair.add(each.ids, each.ignored);
            else if (++skipped <= 8)
                std::fprintf(stderr, "skipped: %s\n", each.problem.c_str());
    }
    if (pair.documents() == 0)
        throw Error(skipped > 0 ? fmt::format("tokenize: none of {} can be read", plural(skipped, "document"))
                                : "tokenize: the input has no documents");
    pair.finish();
    std::printf("wrote %s.bin and %s.idx: %s tokens of %d bytes, %s documents, vocabulary %s\n", command.out.c_str(),
                command.out.c_str(), count_text(pair.tokens()).c_str(), tokenizing.token_bytes(),
                count_text(pair.documents()).c_str(), count_text(tokenizing.vocabulary()).c_str());
    if (skipped > 0) std::printf("%s skipped\n", plural(skipped, "document").c_str());
    for (const std::string& note : tokenizing.notes()) std::printf("%s\n", note.c_str());
    const tokenizer::EncodeCounts counts = tokenizing.counts();
    if (counts.unknown > 0)
        std::printf("%s characters are not in Unicode 14: other libraries may split the text differently there\n",
                    count_text(counts.unknown).c_str());
    if (counts.lost > 0)
        std::printf("%s characters have no token id and were dropped, as the tokenizer's file specifies\n",
                    count_text(counts.lost).c_str());
    return 0;
}

}  // namespace orrery
