#include <catch2/catch.hpp>

#include <vector>

#include "base/hash.h"
#include "base/text.h"

using namespace orrery;

TEST_CASE("sha-256 and hmac match the published vectors") {
    CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    Sha256 pieces;
    pieces.update("a");
    pieces.update("bc");
    CHECK(pieces.hex() == sha256("abc"));
    // RFC 4231, case 2
    CHECK(hex(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(same_secret("token", "token"));
    CHECK_FALSE(same_secret("token", "tokem"));
    CHECK_FALSE(same_secret("token", "toke"));
}

TEST_CASE("crc-32c matches the published vectors, in pieces and by table") {
    // RFC 3720, B.4
    CHECK(crc32c(bytes_of("123456789")) == 0xe3069283u);
    CHECK(crc32c(std::vector<std::byte>(32)) == 0x8a9136aau);
    CHECK(crc32c(std::vector<std::byte>(32, std::byte{0xff})) == 0x62a8ab43u);
    std::string text;
    for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
    for (size_t cut : {0u, 1u, 7u, 8u, 333u, 1000u}) {
        const uint32_t first = crc32c(bytes_of(std::string_view(text).substr(0, cut)));
        CHECK(crc32c(bytes_of(std::string_view(text).substr(cut)), first) == crc32c_portable(bytes_of(text)));
    }
    for (int i = 0; i < 40000; ++i) text += static_cast<char>(i * i >> 5);  // several runs, which are made side by side
    for (const size_t end : {4096u, 12287u, 12288u, 12289u, 24577u, 40999u}) {
        const std::string_view odd = std::string_view(text).substr(1, end);
        CHECK(crc32c(bytes_of(odd), 5) == crc32c_portable(bytes_of(odd), 5));
    }
}
