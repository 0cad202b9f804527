#include "base/files/file_kind.h"

namespace orrery {
namespace {

using namespace std::string_view_literals;

constexpr auto gguf = "give the safetensors that it was made from"sv, lfs = "fetch the file: git lfs pull"sv,
               tensors =
                   "give model.safetensors, or write it with save_file "
                   "of safetensors.torch"sv,
               unpack = "unpack it, or pipe what it holds into `orrery tokenize -`"sv;

constexpr FileKind kinds[] = {
    {"version https://git-lfs"sv, "a pointer of Git LFS, not the file itself"sv, lfs, lfs},
    {"GGUF\x03\0"sv, "a GGUF file"sv, gguf, "give text, or lines of JSON"sv},
    {"GGUF\x02\0"sv, "a GGUF file"sv, gguf, "give text, or lines of JSON"sv},
    {"PK\x03\x04"sv, "a zip file, as torch.save writes"sv, tensors, unpack},
    {"\x80\x02\x8a\x0a"sv, "a pickle, as torch.save wrote"sv, tensors, "give text, or lines of JSON"sv},
    {"PAR1\x15"sv, "a Parquet file"sv, tensors,
     "pipe its texts as lines of JSON into `orrery tokenize -`: the manual has the Python"sv},
    {"\x1f\x8b"sv, "a gzip file"sv, tensors, unpack},
    {"\x28\xb5\x2f\xfd"sv, "a Zstandard file"sv, tensors, unpack},
    {"\xfd\x37zXZ"sv, "an xz file"sv, tensors, unpack},
    {"BZh91AY&SY"sv, "a bzip2 file"sv, tensors, unpack},
};

}  // namespace

const FileKind* file_kind(std::string_view begin) {
    for (const FileKind& kind : kinds)
        if (begin.starts_with(kind.begin)) return &kind;
    return nullptr;
}

}  // namespace orrery
