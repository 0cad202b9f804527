#include <algorithm>
#include <atomic>

#include "orrery/json_text.h"
#include "store.h"

namespace documents {

using orrery::Error;
using sequences::text;

namespace {

constexpr int64_t piece = 1 << 20;  ///< bytes that are read at once

std::atomic<int64_t> stores = 0;

class Lines final : public Store {
public:
    Lines(const sequences::Spec& spec, const std::string& field, int64_t ids)
        : asked_(spec.asked), field_(field), file_(spec.path, "a file of JSON lines", spec.asked) {
        begins_ = {0};
        std::string line, read;
        int64_t number = 0, line_begin = 0;
        for (int64_t from = 0; from < file_.bytes(); from += piece) {
            read.resize(static_cast<size_t>(std::min(piece, file_.bytes() - from)));
            file_.read(-1, from, read.data(), static_cast<int64_t>(read.size()));
            for (size_t begin = 0; begin < read.size();) {
                const size_t end = std::min(read.find('\n', begin), read.size());
                line.append(read, begin, end - begin);
                if (end == read.size()) break;
                add(line, ++number, line_begin);
                line.clear();
                line_begin = from + static_cast<int64_t>(end) + 1;
                begin = end + 1;
            }
        }
        if (!line.empty()) add(line, ++number, line_begin);
        if (tokens() == 0)
            throw Error(asked_, "data file " + spec.path + " has no text in its " + text(number) +
                                    " lines\n  set data.path to lines of JSON with texts");
        if (ids > 0 && ids <= most_)
            throw Error(asked_, "data file " + spec.path + " has bytes up to " + text(most_) +
                                    "; the model's vocabulary is " + text(ids) +
                                    "\n  give the model vocab = 256, one id a byte, or tokenize the lines with `orrery "
                                    "tokenize FILE --field " +
                                    field_ + " --tokenizer FOLDER -o NAME`");
    }

    void read(int64_t sample, int64_t document, int64_t from, int64_t count, int32_t* to) const override {
        const Line& of = lines_[static_cast<size_t>(document)];
        thread_local std::string line, bytes;
        if (of.text >= 0) {
            line.resize(static_cast<size_t>(count));
            file_.read(sample, of.text + from, line.data(), count);
        } else if (thread_local int64_t store = 0, last = 0; store != id_ || last != document) {
            store = 0;  // `bytes` has no document until it has been read whole
            line.resize(static_cast<size_t>(of.bytes));
            file_.read(sample, of.begin, line.data(), of.bytes);
            try {
                bytes = orrery::json_text(line, field_);
            } catch (const Error&) {
                bytes.clear();
            }
            if (static_cast<int64_t>(bytes.size()) != size(document))
                throw Error(asked_,
                            "data file " + file_.path() + " changed while it was read: the line at byte " +
                                text(of.begin) + " differs\n  start again when the file is complete",
                            orrery::Fault::failed);
            store = id_, last = document;
        }
        const char* const begin = of.text >= 0 ? line.data() : bytes.data() + from;
        for (int64_t i = 0; i < count; ++i) to[i] = static_cast<unsigned char>(begin[i]);
    }

    int64_t byte_of(int64_t document) const override { return lines_[static_cast<size_t>(document)].begin; }
    std::string digest() override { return file_.digest(); }
    std::string require_unchanged() override { return file_.require_unchanged(); }

private:
    struct Line {
        int64_t begin, bytes;
        int64_t text;  ///< the byte of the file at which the text begins, -1 if it has escapes
    };

    void add(const std::string& line, int64_t number, int64_t line_begin) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) return;
        try {
            const std::string found = orrery::json_text(line, field_);
            for (const char c : found) most_ = std::max<int64_t>(most_, static_cast<unsigned char>(c));
            const size_t quoted = line.find('"' + found + '"');
            lines_.push_back({line_begin, static_cast<int64_t>(line.size()),
                              quoted == std::string::npos ? -1 : line_begin + static_cast<int64_t>(quoted) + 1});
            begins_.push_back(begins_.back() + static_cast<int64_t>(found.size()));
        } catch (const Error& why) {
            throw Error(asked_, "data file " + file_.path() + ", line " + text(number) + ": " + why.what() +
                                    "\n  each line must be a JSON object; `field` names the key of its text");
        }
    }

    orrery::Origin asked_;
    std::string field_;
    orrery::DataFile file_;
    std::vector<Line> lines_;
    int64_t most_ = 0;             ///< the largest byte
    const int64_t id_ = ++stores;  ///< tells the document that a thread has decoded from other stores' documents
};

}  // namespace

std::unique_ptr<Store> open_lines(const sequences::Spec& spec, const std::string& field, int64_t ids) {
    return std::make_unique<Lines>(spec, field, ids);
}

}  // namespace documents
