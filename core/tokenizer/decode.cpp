#include "tokenizer/decode.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tokenizer/characters.h"

namespace orrery::tokenizer {
namespace {

const std::string_view unreadable = "\xef\xbf\xbd";  // U+FFFD, the replacement character

// Stages pass on valid UTF-8. When invalid bytes are retained, a substitute passes for each: the character U+10FE00 +
// byte. If the text itself has such a character, its bytes get substitutes, too, so that decoding is unambiguous.
const std::string_view stand_in = "\xf4\x8f\xb8";  // prefix of U+10FE00 to U+10FE3F; those above have \xb9 to \xbb

int64_t stand_in_at(std::string_view text, size_t at) {
    if (text.size() - at < 4 || text.substr(at, 2) != stand_in.substr(0, 2)) return -1;
    const int block = static_cast<unsigned char>(text[at + 2]) - 0xb8;
    return block < 0 || block > 3 ? -1 : block * 64 + (static_cast<unsigned char>(text[at + 3]) & 0x3f);
}

void stand_for(std::string_view bytes, std::string& out) {
    for (const char byte : bytes) append_character(out, U'\U0010FE00' + static_cast<unsigned char>(byte));
}

/// Encodes any bytes as valid UTF-8, with substitutes for invalid bytes.
void guard(std::string_view bytes, std::string& out) {
    for (size_t at = 0; at < bytes.size();) {
        const int64_t length = next_character(bytes, at);
        const size_t end = length == 0 ? bytes.size() : at + static_cast<size_t>(std::abs(length));
        const std::string_view part = bytes.substr(at, end - at);
        if (length > 0 && stand_in_at(bytes, at) < 0)
            out += part;
        else
            stand_for(part, out);
        at = end;
    }
}

/// Undoes guard(): turns substitutes into their bytes.
std::string unguard(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const int64_t byte = stand_in_at(text, at);
        if (byte >= 0)
            out += static_cast<char>(byte);
        else
            out += text[at];
        at += byte >= 0 ? 4 : 1;
    }
    return out;
}

bool kept(Unreadable bytes) { return bytes == Unreadable::kept; }

class Linked : public DecodeStage {
public:
    explicit Linked(std::unique_ptr<DecodeStage> next) : next_(std::move(next)) {}

protected:
    DecodeStage& next() { return *next_; }

private:
    std::unique_ptr<DecodeStage> next_;
};

class Collect final : public DecodeStage {
public:
    /// `guarded`: number of stages that applied guard(), which the result must undo.
    Collect(std::string& out, bool spaces, int64_t guarded) : out_(&out), spaces_(spaces), guarded_(guarded) {}
    void take(std::string_view token) override {
        if (spaces_ && !first_) out_->push_back(' ');
        first_ = false;
        if (guarded_ == 0) {
            *out_ += token;
            return;
        }
        std::string bytes(token);
        for (int64_t i = 0; i < guarded_; ++i) bytes = unguard(bytes);
        *out_ += bytes;
    }
    void finish() override {}

private:
    std::string* out_;
    bool spaces_, first_ = true;
    int64_t guarded_;
};

/// Joins the parts of a token for a stage that needs the whole token at once.
class Whole final : public Linked {
public:
    using Linked::Linked;
    void take(std::string_view token) override { all_ += token; }
    void finish() override {
        next().take(all_);
        next().finish();
    }

private:
    std::string all_;
};

class ByteLevel final : public Linked {
public:
    ByteLevel(Unreadable bytes, std::unique_ptr<DecodeStage> next) : Linked(std::move(next)), kept_(kept(bytes)) {}
    void take(std::string_view token) override {
        if (bytes_of(token, bytes_))
            waiting_ += bytes_;
        else
            waiting_ += token;
        give(false);
    }
    void finish() override {
        give(true);
        next().finish();
    }

private:
    /// Gives complete characters to the next stage; invalid bytes become U+FFFD, or substitutes.
    void give(bool last) {
        text_.clear();
        size_t at = 0;
        while (at < waiting_.size()) {
            const int64_t length = next_character(waiting_, at);
            if (length == 0 && !last) break;
            const size_t end = length == 0 ? waiting_.size() : at + static_cast<size_t>(std::abs(length));
            const std::string_view part = std::string_view(waiting_).substr(at, end - at);
            if (kept_)
                guard(part, text_);
            else
                text_ += length > 0 ? part : unreadable;
            at = end;
        }
        waiting_.erase(0, at);
        if (!text_.empty()) next().take(text_);
    }

    bool kept_;
    std::string waiting_, bytes_, text_;
};

class ByteFallback final : public Linked {
public:
    ByteFallback(Unreadable bytes, std::unique_ptr<DecodeStage> next) : Linked(std::move(next)), kept_(kept(bytes)) {}
    void take(std::string_view token) override {
        const int byte = byte_of(token);
        if (byte >= 0) {
            bytes_.push_back(static_cast<char>(byte));
            return;
        }
        give();
        if (!kept_) return next().take(token);
        std::string guarded;
        guard(token, guarded);
        next().take(guarded);
    }
    void finish() override {
        give();
        next().finish();
    }

private:
    /// Returns the byte of "<0x0A>"; -1 for other tokens. Like Rust, accepts a plus and one digit.
    static int byte_of(std::string_view token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
        std::string_view digits = token.substr(3, 2);
        if (digits[0] == '+') digits.remove_prefix(1);
        int byte = 0;
        for (const char c : digits) {
            const int digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                     : -1;
            if (digit < 0) return -1;
            byte = 16 * byte + digit;
        }
        return byte;
    }
    /// Decodes a run of byte tokens. If the run is not valid UTF-8, every byte becomes U+FFFD, unless invalid bytes are
    /// retained.
    void give() {
        if (bytes_.empty()) return;
        if (kept_) {
            std::string guarded;
            guard(bytes_, guarded);
            next().take(guarded);
        } else if (valid_until(bytes_) == bytes_.size()) {
            next().take(bytes_);
        } else {
            for (size_t i = 0; i < bytes_.size(); ++i) next().take(unreadable);
        }
        bytes_.clear();
    }

    bool kept_;
    std::string bytes_;
};

class Replace final : public Linked {
public:
    Replace(const DecodeStep& step, std::unique_ptr<DecodeStage> next) : Linked(std::move(next)), step_(&step) {}
    void take(std::string_view token) override {
        parts_.clear();
        text_.clear();
        step_->pattern.cut(token, parts_);
        for (const Part& part : parts_)
            text_ += part.match ? std::string_view(step_->content) : token.substr(part.begin, part.end - part.begin);
        next().take(text_);
    }
    void finish() override { next().finish(); }

private:
    const DecodeStep* step_;
    std::vector<Part> parts_;
    std::string text_;
};

/// Strips each token. If fused (the text is one token in parts), strips the text, holding back what may be its end.
class Strip final : public Linked {
public:
    Strip(const DecodeStep& step, bool fused, std::unique_ptr<DecodeStage> next)
        : Linked(std::move(next)), step_(&step), fused_(fused), left_(step.start) {}
    void take(std::string_view token) override {
        if (!fused_) left_ = step_->start;
        while (left_ > 0 && token.starts_with(step_->content)) {
            token.remove_prefix(step_->content.size());
            --left_;
        }
        if (!token.empty()) left_ = 0;
        kept_ += token;
        if (!fused_) return give(0, true);
        int64_t ends = 0;
        size_t end = kept_.size();
        for (; ends < step_->stop && std::string_view(kept_).substr(0, end).ends_with(step_->content); ++ends)
            end -= step_->content.size();
        give(kept_.size() - end, false);
    }
    void finish() override {
        if (fused_) give(0, true);
        next().finish();
    }

private:
    /// Gives the text except its last `held` bytes to the next stage; `last` also strips the end.
    void give(size_t held, bool last) {
        std::string_view text(kept_);
        text.remove_suffix(held);
        for (int64_t i = 0; last && i < step_->stop && text.ends_with(step_->content); ++i)
            text.remove_suffix(step_->content.size());
        if (!text.empty() || !fused_) next().take(text);
        kept_.erase(0, last ? kept_.size() : kept_.size() - held);
    }

    const DecodeStep* step_;
    bool fused_;
    int64_t left_;
    std::string kept_;
};

class Metaspace final : public Linked {
public:
    Metaspace(const DecodeStep& step, bool fused, std::unique_ptr<DecodeStage> next)
        : Linked(std::move(next)), step_(&step), fused_(fused) {}
    void take(std::string_view token) override {
        text_.clear();
        for (size_t at = 0; at < token.size(); at += length_of(token[at])) {
            const bool meta = character_at(token.data() + at) == step_->replacement;
            if (!meta)
                text_ += token.substr(at, length_of(token[at]));
            else if (!(first_ && step_->drop_first))
                text_.push_back(' ');
        }
        first_ = first_ && fused_;
        next().take(text_);
    }
    void finish() override { next().finish(); }

private:
    const DecodeStep* step_;
    bool fused_, first_ = true;
    std::string text_;
};

void read_into(const Field& field, std::vector<DecodeStep>& steps) {
    using Kind = DecodeStep::Kind;
    const std::string& type = field.at("type").text();
    DecodeStep step;
    if (type == "Sequence") {
        field.only({"type", "decoders"});
        const std::vector<Field> all = field.at("decoders").items();
        for (const Field& one : all) read_into(one, steps);
        return;
    }
    if (type == "ByteLevel") {
        field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
        step.kind = Kind::byte_level;
    } else if (type == "ByteFallback" || type == "Fuse") {
        field.only({"type"});
        step.kind = type == "Fuse" ? Kind::fuse : Kind::byte_fallback;
    } else if (type == "Replace") {
        field.only({"type", "pattern", "content"});
        step.kind = Kind::replace;
        step.pattern = Pattern::read(field.at("pattern"));
        if (field.at("pattern").has("String")) {
            const std::string& text = field.at("pattern").at("String").text();
            step.one_character = !text.empty() && text.size() == length_of(text[0]);
        }
        step.content = field.at("content").text();
    } else if (type == "Strip") {
        field.only({"type", "content", "start", "stop"});
        step.kind = Kind::strip;
        append_character(step.content, field.at("content").character());
        step.start = field.at("start").whole();
        step.stop = field.at("stop").whole();
    } else if (type == "Metaspace") {
        field.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
        step.kind = Kind::metaspace;
        step.replacement = field.at("replacement").character();
        step.drop_first = field.text_or("prepend_scheme", "always") != "never";
    } else {
        field.refuse_type("decoders: ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip");
    }
    steps.push_back(std::move(step));
}

}  // namespace

DecodeStage::~DecodeStage() = default;

std::vector<DecodeStep> read_decoders(const Field& field) {
    std::vector<DecodeStep> steps;
    read_into(field, steps);
    return steps;
}

std::unique_ptr<DecodeStage> make_stages(const std::vector<DecodeStep>& steps, std::string& out, Unreadable bytes) {
    using Kind = DecodeStep::Kind;
    std::vector<bool> fused;
    bool single = false;
    for (const DecodeStep& step : steps) {
        fused.push_back(single);
        single = single || step.kind == Kind::fuse || step.kind == Kind::byte_level;
    }
    const int64_t guarded = !kept(bytes) ? 0 : std::count_if(steps.begin(), steps.end(), [](const DecodeStep& step) {
        return step.kind == Kind::byte_level || step.kind == Kind::byte_fallback;
    });
    std::unique_ptr<DecodeStage> stage = std::make_unique<Collect>(out, steps.empty(), guarded);
    for (size_t i = steps.size(); i-- > 0;) {
        const DecodeStep& step = steps[i];
        bool whole = false;
        switch (step.kind) {
            case Kind::byte_level: stage = std::make_unique<ByteLevel>(bytes, std::move(stage)), whole = true; break;
            case Kind::byte_fallback:
                stage = std::make_unique<ByteFallback>(bytes, std::move(stage)), whole = true;
                break;
            case Kind::fuse: break;  // has no stage; later steps are `fused`
            case Kind::replace:
                stage = std::make_unique<Replace>(step, std::move(stage)), whole = !step.one_character;
                break;
            case Kind::strip: stage = std::make_unique<Strip>(step, fused[i], std::move(stage)); break;
            case Kind::metaspace: stage = std::make_unique<Metaspace>(step, fused[i], std::move(stage)); break;
        }
        if (fused[i] && whole) stage = std::make_unique<Whole>(std::move(stage));
    }
    return stage;
}

}  // namespace orrery::tokenizer
