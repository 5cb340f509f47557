#include "copus/data/tokens.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "unit/data/shard_support.h"

namespace copus {
namespace {
using namespace test;
using Catch::Contains;

template <class T>
std::string patched(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

TEST_CASE("a shard gives back the ids, counts and names that were written") {
  TempFolder const folder;
  std::vector<std::int32_t> const ids = counting(10000);
  std::string const path = folder / "a.bin";
  ShardWriter writer(path, 257, "bytes");
  writer.append(std::span(ids).first(7000));
  writer.end_document();
  writer.append(std::span(ids).last(3000));
  writer.end_document();
  CHECK(writer.tokens() == 10000);
  writer.finish();
  TokenShard const shard = TokenShard::open(path, true);
  CHECK(shard.header().tokens == 10000);
  CHECK(shard.header().documents == 2);
  CHECK(shard.header().vocab == 257);
  CHECK(shard.header().tokenizer == "bytes");
  CHECK(ids_of(path) == ids);
  std::vector<std::int32_t> part(5);
  shard.read(9995, part);
  CHECK(part == std::vector<std::int32_t>(ids.end() - 5, ids.end()));
  CHECK_THROWS_AS(shard.read(9996, part), InternalError);
  CHECK_THROWS_AS(shard.read(-1, part), InternalError);
  CHECK(names_in(folder.path) == std::vector<std::string>{"a.bin"});
}

TEST_CASE("D1: ids take two bytes up to a vocabulary of 65536 and four beyond") {
  TempFolder const folder;
  for (std::int64_t const vocab : {65535, 65536, 65537, 119547}) {
    auto const top = static_cast<std::int32_t>(vocab - 1);
    std::string const path = folder / "v.bin";
    ShardHeader const header = write_shard(path, {0, top, 1}, vocab);
    CHECK(header.token_bytes == (vocab <= 65536 ? 2u : 4u));
    CHECK(ids_of(path) == std::vector<std::int32_t>{0, top, 1});
  }
}

TEST_CASE("D1: the writer refuses an id outside the vocabulary and leaves no file") {
  TempFolder const folder;
  for (std::int32_t const bad : {257, -1, 65536 + 5}) {
    std::string const what = config_error([&] { write_shard(folder / "w.bin", {1, 2, bad}); });
    CHECK_THAT(what, Contains("w.bin") && Contains("token 2") && Contains(std::to_string(bad)) &&
                         Contains("257"));
  }
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("D3, D4: an id outside the vocabulary is found on opening, wherever it stands") {
  TempFolder const folder;
  std::string const path = folder / "bad.bin";
  for (std::int64_t const vocab : {300, 70000}) {
    std::size_t const width = vocab > 65536 ? 4 : 2;
    std::vector<std::int32_t> const ids = counting(9001);
    for (std::size_t const at : {0u, 4095u, 4096u, 8999u, 9000u}) {
      write_shard(path, ids, vocab);
      std::size_t const byte = 64 + at * width;
      std::string const bytes = read_file(path);
      write_file(path, width == 2 ? patched(bytes, byte, std::uint16_t{300})
                                  : patched(bytes, byte, std::uint32_t{0x80000001u}));
      std::string const what = config_error([&] { TokenShard::open(path); });
      INFO(what);
      CHECK_THAT(what, Contains(path) && Contains("token " + std::to_string(at) + " ") &&
                           Contains("byte " + std::to_string(byte) + ")") &&
                           Contains(width == 2 ? "is 300," : "is 2147483649,") &&
                           Contains("vocabulary of " + std::to_string(vocab)));
      CHECK(TokenShard::read_header(path).tokens == 9001);  // which says nothing of the ids
    }
  }
}

TEST_CASE("a flipped bit that keeps every id legal is found by the checksum") {
  TempFolder const folder;
  std::string const path = folder / "c.bin";
  write_shard(path, counting(100));
  std::string bytes = read_file(path);
  bytes[64 + 20] = static_cast<char>(bytes[64 + 20] ^ 1);
  write_file(path, bytes);
  CHECK_NOTHROW(TokenShard::open(path));
  CHECK_THAT(config_error([&] { TokenShard::open(path, true); }), Contains("checksum"));
}

TEST_CASE("a shard cut short anywhere is refused") {
  TempFolder const folder;
  std::string const path = folder / "s.bin";
  write_shard(path, counting(40));
  std::string const bytes = read_file(path);
  REQUIRE(bytes.size() == 64 + 80);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write_file(path, bytes.substr(0, size));
    INFO("size " << size);
    REQUIRE_THAT(config_error([&] { TokenShard::open(path); }), Contains(path));
  }
  write_file(path, bytes + "x");
  CHECK_THAT(config_error([&] { TokenShard::open(path); }), Contains("follow"));
}

TEST_CASE("a hostile header is refused before anything it claims is read") {
  TempFolder const folder;
  std::string const path = folder / "h.bin";
  write_shard(path, counting(40));
  std::string const good = read_file(path);
  auto const refused = [&](const std::string& bytes) {
    write_file(path, bytes);
    return !config_error([&] { TokenShard::open(path); }).empty();
  };
  CHECK_FALSE(refused(good));
  CHECK(refused(patched(good, 0, 'X')));
  CHECK(refused(patched(good, 8, std::uint32_t{2})));
  CHECK(refused(patched(good, 12, std::uint32_t{0})));
  CHECK(refused(patched(good, 12, std::uint32_t{4})));
  for (std::int64_t const count :
       {std::int64_t{-1}, std::int64_t{41}, std::int64_t{39}, std::int64_t{1} << 62,
        (std::int64_t{1} << 62) + 40, std::numeric_limits<std::int64_t>::max()}) {
    CHECK(refused(patched(good, 16, count)));
  }
  CHECK(refused(patched(good, 24, std::int64_t{41})));
  CHECK(refused(patched(good, 24, std::int64_t{-1})));
  for (std::int64_t const vocab : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{1} << 31}) {
    CHECK(refused(patched(good, 32, vocab)));
  }
  CHECK(refused(patched(good, 48, std::uint32_t{0})));
  CHECK(refused(patched(good, 48, std::uint32_t{128})));
  CHECK(refused(patched(good, 52, std::uint32_t{9})));
  CHECK(refused(patched(good, 52, ~std::uint32_t{0})));
  CHECK(refused(patched(patched(good, 48, std::uint32_t{4160}), 52, std::uint32_t{4096})));
}

TEST_CASE("a tokenizer id that is no printable text, or none, is a damaged header") {
  TempFolder const folder;
  std::string const path = folder / "a.bin";
  write_shard(path, counting(10));
  std::string const good = read_file(path);
  std::size_t const id = good.find("bytes");
  REQUIRE(id != std::string::npos);
  for (const std::string& bad :
       {std::string("\xff\xff"), std::string("b\0", 2), std::string("\x1b["), std::string("b\n")}) {
    write_file(path, std::string(good).replace(id, bad.size(), bad));
    CHECK_THAT(config_error([&] { TokenShard::open(path); }), Contains("tokenizer id"));
  }
  write_shard(path, counting(10), 257, "");
  CHECK_THAT(config_error([&] { TokenShard::open(path); }), Contains("tokenizer id"));
}

TEST_CASE("what is no shard is refused, and what is not there is an I/O error") {
  TempFolder const folder;
  write_file(folder / "text.bin", std::string(1000, 'a'));
  CHECK_THAT(config_error([&] { TokenShard::open(folder / "text.bin"); }),
             Contains("not a token shard"));
  CHECK_THROWS_AS(TokenShard::open(folder / "missing.bin"), IoError);
  CHECK_THAT(config_error([&] { TokenShard::open(folder.path); }), Contains("regular file"));
  CHECK_THROWS_AS(ShardWriter(folder / "no/such/folder.bin", 257, "bytes"), IoError);
}

TEST_CASE(
    "a writer that never finishes leaves nothing, and an old shard stands until the new one does") {
  TempFolder const folder;
  std::string const path = folder / "a.bin";
  write_shard(path, {1, 2, 3});
  {
    ShardWriter writer(path, 257, "bytes");
    writer.append(counting(2000000));
    CHECK(names_in(folder.path).size() == 2);
  }
  CHECK(names_in(folder.path) == std::vector<std::string>{"a.bin"});
  CHECK(ids_of(path) == std::vector<std::int32_t>{1, 2, 3});
  write_shard(path, {4});
  CHECK(ids_of(path) == std::vector<std::int32_t>{4});
}

TEST_CASE("a shard without tokens can be written and opened") {
  TempFolder const folder;
  ShardWriter(folder / "e.bin", 257, "bytes").finish();
  CHECK(TokenShard::open(folder / "e.bin", true).header().tokens == 0);
}

// 4.3 GB of sparse file: run by name.
TEST_CASE("token positions past 2^31 are read where they stand", "[.][large]") {
  TempFolder const folder;
  std::string const path = folder / "large.bin";
  write_shard(path, {7});
  std::int64_t const tokens = (std::int64_t{1} << 31) + 1000;
  write_file(path, patched(read_file(path), 16, tokens));
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(64 + 2 * tokens));
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(64 + 2 * (tokens - 3))
      << "\x09";
  std::vector<std::int32_t> ids(4);
  TokenShard::open(path).read(tokens - 4, ids);
  CHECK(ids == std::vector<std::int32_t>{0, 9, 0, 0});
}

}  // namespace
}  // namespace copus
