#include "cli/tokenize/documents.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files/file_kind.h"
#include "base/text.h"

namespace orrery {
namespace {

constexpr size_t batch_bytes = 16 << 20, read_bytes = 1 << 20, kind_bytes = 32;

}  // namespace

bool Documents::next(std::vector<Document>& batch) {
    batch.clear();
    size_t bytes = 0;
    while (bytes < batch_bytes && open()) {
        const size_t before = batch.size();
        if (!lines_)
            whole(batch);
        else if (!line(batch))
            open_ = false, ++file_;
        if (batch.size() > before) bytes += batch.back().text.size();
    }
    return !batch.empty();
}

bool Documents::open() {
    if (open_) return true;
    if (file_ == files_.size()) return false;
    const std::string& path = files_[file_];
    in_.reset();
    if (path != "-") {
        in_ = std::make_unique<RegularFile>(path);
        if (!in_->problem().empty()) throw Error(fmt::format("text file {} {}", path, in_->problem()));
        if (in_->bytes() == 0) throw Error(fmt::format("text file {} is empty", path));
        if (const FileKind* kind = file_kind(in_->text(kind_bytes)))
            throw Error(fmt::format("text file {} is {}; expected text\n  {}", path, kind->what, kind->as_text));
    }
    open_ = true;
    ended_ = false;
    offset_ = line_ = 0;
    waiting_.clear();
    given_ = 0;
    return true;
}

size_t Documents::read(char* out, size_t bytes) {
    if (in_) {
        const size_t got = in_->read(offset_, out, bytes);
        offset_ += static_cast<int64_t>(got);
        return got;
    }
    while (true) {
        const ssize_t got = ::read(STDIN_FILENO, out, bytes);
        if (got >= 0) return static_cast<size_t>(got);
        if (errno != EINTR)
            throw Error(fmt::format("cannot read standard input: {}", std::strerror(errno)), Fault::failed);
    }
}

void Documents::whole(std::vector<Document>& batch) {
    Document document{"", {"", files_[file_] == "-" ? "standard input" : files_[file_]}};
    size_t size = 0;
    do {
        document.text.resize(size + read_bytes);
        const size_t got = read(document.text.data() + size, read_bytes);
        size += got;
        ended_ = got == 0;
    } while (!ended_);
    document.text.resize(size);
    if (size == 0) throw Error(fmt::format("{} is empty, or was already read", document.where.file));
    batch.push_back(std::move(document));
    open_ = false;
    ++file_;
}

bool Documents::line(std::vector<Document>& batch) {
    size_t end = waiting_.find('\n', given_);
    while (end == std::string::npos && !ended_) {
        waiting_.erase(0, given_);
        given_ = 0;
        const size_t size = waiting_.size();
        waiting_.resize(size + read_bytes);
        const size_t got = read(waiting_.data() + size, read_bytes);
        waiting_.resize(size + got);
        ended_ = got == 0;
        end = waiting_.find('\n', size);
    }
    if (end == std::string::npos && given_ == waiting_.size()) return false;
    const size_t stop = end == std::string::npos ? waiting_.size() : end;
    ++line_;
    const std::string_view text = std::string_view(waiting_).substr(given_, stop - given_);
    if (!trim(text).empty())
        batch.push_back({std::string(text), {"", files_[file_] == "-" ? "standard input" : files_[file_], line_}});
    given_ = end == std::string::npos ? stop : end + 1;
    return true;
}

}  // namespace orrery
