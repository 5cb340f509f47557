#include "copus/state/safetensors.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "state_fixture.h"

using namespace copus;
using namespace copus::test;

namespace {

struct Hostile {
  std::string what, bytes, named;
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets +
         "]}";
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                std::size_t data) {
  return safetensors_bytes(R"({"a":)" + entry(dtype, shape, offsets) + "}", std::string(data, 'x'));
}
std::string length_only(std::uint64_t n, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&n), 8) + rest;
}

std::vector<Hostile> hostile_files() {
  std::string const ok = entry("F32", "1", "0,4");
  std::vector<Hostile> t = {
      {"empty", "", "0 bytes"},
      {"shorter than the length", "abc", "3 bytes"},
      {"length past the end", length_only(100, "{}"), "100 bytes"},
      {"length of all ones", length_only(~std::uint64_t{0}, "{}"), "18446744073709551615"},
      {"length that wraps when 8 is added", length_only(~std::uint64_t{0} - 7, "{}"), "header"},
      {"length of zero", length_only(0, "{}"), "does not begin"},
      {"not JSON", safetensors_bytes("{hello}", ""), "not JSON"},
      {"a list", safetensors_bytes("[]", ""), "does not begin"},
      {"two documents", safetensors_bytes("{}{}", ""), "not JSON"},
      {"deep nesting", safetensors_bytes("{\"a\":" + std::string(1000000, '['), ""), "a list"},
      {"deep objects", safetensors_bytes("{\"a\":{\"dtype\":{\"x\":{", ""), "an object"},
      {"tensor is a number", safetensors_bytes("{\"a\":1}", ""), "number"},
      {"duplicate tensor", safetensors_bytes("{\"a\":" + ok + ",\"a\":" + ok + "}", "xxxx"),
       "twice"},
      {"duplicate key",
       safetensors_bytes(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                         "xxxx"),
       "twice"},
      {"duplicate metadata", safetensors_bytes(R"({"__metadata__":{"a":"b","a":"c"}})", ""),
       "twice"},
      {"metadata number", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""), "number"},
      {"unknown key", safetensors_bytes(R"({"a":{"dtype":"F32","size":4}})", ""), "size"},
      {"no offsets", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1]}})", "xxxx"), "lacks"},
      {"unknown dtype", one("F33", "1", "0,4", 4), "F33"},
      {"negative size", one("F32", "-1", "0,4", 4), "-1"},
      {"fractional size", one("F32", "1.5", "0,4", 4), "1.5"},
      {"huge number", one("F32", "99999999999999999999999", "0,4", 4), "number"},
      {"63 bits", one("F32", "9223372036854775808", "0,4", 4), "63 bits"},
      {"overflowing shape", one("F32", "4294967296,4294967296", "0,4", 4), "63 bits"},
      {"product that wraps to the right size", one("F32", "4611686018427387905", "0,4", 4),
       "63 bits"},
      {"offset past the end", one("F32", "2", "0,8", 4), "outside"},
      {"offsets reversed", one("F32", "1", "4,0", 4), "outside"},
      {"enormous offsets", one("F32", "1", "9223372036854775803,9223372036854775807", 4),
       "outside"},
      {"three offsets", one("F32", "1", "0,4,8", 4), "3 data_offsets"},
      {"size against shape", one("F32", "2", "0,4", 4), "has 8"},
      {"hole before", one("F32", "1", "4,8", 8), "hole"},
      {"unused tail", one("F32", "1", "0,4", 8), "use 4"},
      {"overlap",
       safetensors_bytes("{\"a\":" + ok + ",\"b\":" + entry("F32", "1", "2,6") + "}", "xxxxxx"),
       "overlapping"},
      {"shared bytes", safetensors_bytes("{\"a\":" + ok + ",\"b\":" + ok + "}", "xxxx"),
       "overlapping"},
  };
  return t;
}

// The value of half bits by its definition.
double half_value(unsigned bits) {
  int const exponent = static_cast<int>((bits >> 10) & 31u);
  double const fraction = bits & 1023u;
  double const magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("a malformed safetensors file is refused with what is wrong in it") {
  TempFolder const folder;
  for (const Hostile& file : hostile_files()) {
    INFO(file.what);
    std::string const path = folder / "model.safetensors";
    write_bytes(path, file.bytes);
    std::string const text = problems_of([&] { SafetensorsFile::open(path); });
    INFO(text);
    CHECK(names(text, path));
    CHECK(names(text, file.named));
  }
}

TEST_CASE(
    "a safetensors file cut anywhere, or with any one header byte changed, is refused or read "
    "inside its bounds") {
  TempFolder const folder;
  std::string const path = folder / "x.safetensors";
  SafetensorsWriter writer(path, {{"a", {2, 2}}, {"b", {3}}}, {{"k", "v"}});
  writer.append(std::vector<float>(7, 1.0f));
  writer.finish();
  std::string const whole = read_bytes(path);
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    write_bytes(path, whole.substr(0, cut));
    CHECK_THROWS_AS(SafetensorsFile::open(path), ConfigError);
  }
  for (std::size_t at = 0; at < whole.size() - 28; ++at) {
    for (char const flip : {'\x01', '\x10', '\x80'}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      write_bytes(path, changed);
      try {
        SafetensorsFile const file = SafetensorsFile::open(path);
        for (const auto& [name, tensor] : file.tensors()) {
          if (tensor.dtype == "F32") CHECK(read_all(file, name).size() <= 7);
        }
      } catch (const ConfigError&) {
      }
    }
  }
}

TEST_CASE("a missing file is the world's failure, a directory in its place a mistake") {
  TempFolder const folder;
  CHECK_THROWS_AS(SafetensorsFile::open(folder / "none"), IoError);
  CHECK_THROWS_AS(SafetensorsFile::open(folder.path), ConfigError);
}

TEST_CASE("a file cut short while it is read is an error that names it") {
  TempFolder const folder;
  std::string const path = folder / "x.safetensors";
  SafetensorsWriter writer(path, {{"a", {4096}}, {"b", {4096}}}, {});
  writer.append(std::vector<float>(8192, 1.0f));
  writer.finish();
  SafetensorsFile const file = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4096 * 4 - 100);
  std::vector<float> out(4096);
  for (const char* name : {"a", "b"}) {
    try {
      file.read_f32(name, 0, out);
      FAIL("read beyond the end");
    } catch (const IoError& error) {
      CHECK(names(error.what(), path));
      CHECK(names(error.what(), "shorter"));
    }
  }
}

TEST_CASE("every bf16 and f16 pattern becomes exactly its value in f32") {
  TempFolder const folder;
  std::string data;
  for (int pass = 0; pass < 2; ++pass) {
    for (unsigned i = 0; i < 65536; ++i) {
      data += static_cast<char>(i & 255u);
      data += static_cast<char>(i >> 8);
    }
  }
  std::string const path = folder / "halves.safetensors";
  // A header of odd length: the data need not be aligned.
  std::string header = R"({"b":)" + entry("BF16", "65536", "0,131072") + R"(,"h":)" +
                       entry("F16", "65536", "131072,262144") + "}";
  if (header.size() % 2 == 0) header += " ";
  write_bytes(path, safetensors_bytes(header, data));
  SafetensorsFile const file = SafetensorsFile::open(path);
  std::vector<float> const b = read_all(file, "b"), h = read_all(file, "h");
  int wrong = 0;
  for (unsigned i = 0; i < 65536; ++i) {
    if (std::bit_cast<std::uint32_t>(b[i]) != i << 16) ++wrong;
    bool const special = ((i >> 10) & 31u) == 31;
    bool const negative = (i & 0x8000u) != 0;
    if (std::signbit(h[i]) != negative) ++wrong;
    if (special && (i & 1023u) == 0 && !std::isinf(h[i])) ++wrong;
    if (special && (i & 1023u) != 0 && !std::isnan(h[i])) ++wrong;
    if (!special && static_cast<double>(h[i]) != half_value(i)) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("what the writer streams in pieces reads back bit for bit, aligned to 8") {
  TempFolder const folder;
  std::string const path = folder / "w.safetensors";
  std::vector<float> values(300000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 2654435761u));
  }
  SafetensorsWriter writer(path, {{"z", {299990}}, {"a \"q\"", {2, 5}}, {"empty", {0, 3}}},
                           {{"format", "pt"}});
  for (std::size_t at = 0, step = 1; at < values.size(); at += step, step = step * 2 + 1) {
    std::size_t const n = std::min(step, values.size() - at);
    writer.append(std::span(values).subspan(at, n));
  }
  writer.finish();
  std::string const bytes = read_bytes(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
  CHECK(writer.file_bytes() == static_cast<std::int64_t>(bytes.size()));
  CHECK(std::memcmp(bytes.data() + 8 + length, values.data(), values.size() * 4) == 0);
  SafetensorsFile const file = SafetensorsFile::open(path);
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.tensors().at("a \"q\"").begin == 299990 * 4);
  CHECK(file.tensors().at("empty").numel() == 0);
}

TEST_CASE("a read beyond a tensor and a write beyond the announced size are our mistakes") {
  TempFolder const folder;
  std::string const path = folder / "w.safetensors";
  SafetensorsWriter writer(path, {{"a", {2}}}, {});
  std::vector<float> three(3);
  CHECK_THROWS_AS(writer.append(three), InternalError);
  SafetensorsFile const file = SafetensorsFile::open(golden("gpt2") + "/model.safetensors");
  CHECK_THROWS_AS(file.read_f32("transformer.ln_f.bias", 46, three), InternalError);
  CHECK_THROWS_AS(file.read_f32("transformer.ln_f.bias", -1, three), InternalError);
}

TEST_CASE("a full disk is reported, not ignored") {
  SafetensorsWriter writer("/dev/full", {{"a", {1 << 20}}}, {});
  std::vector<float> const much(1 << 20);
  CHECK_THROWS_AS(
      [&] {
        writer.append(much);
        writer.finish();
      }(),
      IoError);
}
