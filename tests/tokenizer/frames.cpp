// tokenizer_frames FILE encode|encode_with|decode|decode_without|stream < FRAMES > FRAMES
// tokenizer_frames FILE time FRAMES THREADS   for each line of standard input: seconds of encoding all, how many ids,
//                                             processor seconds
//
// A frame is a count (u32, little-endian) and so many bytes of text, or ids (i32). What cannot be encoded comes back as
// the count 2^32 - 1, and its reason on standard error. For scripts that compare with another tokenizer.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "orrery/error.h"
#include "tokenizer/encoder.h"

using namespace orrery;
using namespace orrery::tokenizer;

namespace {

std::string all_of(std::istream& in) { return {std::istreambuf_iterator<char>(in), {}}; }

uint32_t count_at(const std::string& frames, size_t at) {
    uint32_t count = 0;
    std::memcpy(&count, frames.data() + at, sizeof count);
    return count;
}

void put(uint32_t count, const void* data, size_t bytes) {
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(data, 1, bytes, stdout);
}

std::vector<std::string_view> texts_of(const std::string& frames) {
    std::vector<std::string_view> texts;
    for (size_t at = 0; at < frames.size(); at += sizeof(uint32_t) + texts.back().size())
        texts.push_back(std::string_view(frames).substr(at + sizeof(uint32_t), count_at(frames, at)));
    return texts;
}

void encode(const Tokenizer& tokenizer, Around around) {
    const std::string frames = all_of(std::cin);
    Encoder encoder(tokenizer);
    std::vector<int32_t> ids;
    for (const std::string_view text : texts_of(frames)) {
        ids.clear();
        try {
            encoder.encode(text, around, ids);
            put(static_cast<uint32_t>(ids.size()), ids.data(), ids.size() * sizeof(int32_t));
        } catch (const Error& error) {
            std::fprintf(stderr, "%s\n", error.what());
            put(UINT32_MAX, nullptr, 0);
        }
    }
    std::fprintf(stderr, "unknown %lld\n", static_cast<long long>(encoder.counts().unknown));
}

void decode(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& how) {
    const std::string frames = all_of(std::cin);
    for (size_t at = 0; at < frames.size();) {
        std::vector<int32_t> ids(count_at(frames, at));
        std::memcpy(ids.data(), frames.data() + at + sizeof(uint32_t), ids.size() * sizeof(int32_t));
        at += sizeof(uint32_t) + ids.size() * sizeof(int32_t);
        std::string text;
        if (how == "stream") {
            TextStream stream(tokenizer);
            for (const int32_t id : ids) text += stream.put(id);
            text += stream.finish();
        } else {
            text = tokenizer->decode(ids, how == "decode_without");
        }
        put(static_cast<uint32_t>(text.size()), text.data(), text.size());
    }
}

void time_all(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& file, int threads) {
    std::ifstream in(file, std::ios::binary);
    const std::string frames = all_of(in);
    const std::vector<std::string_view> texts = texts_of(frames);
    for (std::string line; std::getline(std::cin, line);) {
        const auto begin = std::chrono::steady_clock::now();
        const std::clock_t worked = std::clock();  // of all threads
        Encoders encoders(tokenizer, threads);
        const auto ids = encoders.encode(texts, Around::none);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
        size_t many = 0;
        for (const auto& each : ids) many += each.size();
        const double processor = static_cast<double>(std::clock() - worked) / CLOCKS_PER_SEC;
        std::printf("%.9f %zu %.9f\n", seconds.count(), many, processor);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int count, char** words) {
    try {
        const std::string how = count > 2 ? words[2] : "";
        if (count < 3 || (how == "time" && count != 5)) throw Error("arguments: FILE HOW, or FILE time TEXTS THREADS");
        const auto tokenizer = Tokenizer::load(words[1]);
        if (how == "time")
            time_all(tokenizer, words[3], std::atoi(words[4]));
        else if (how == "encode" || how == "encode_with")
            encode(*tokenizer, how == "encode_with" ? Around::both : Around::none);
        else
            decode(tokenizer, how);
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "tokenizer_frames: %s\n", problem.what());
        return 2;
    }
}
