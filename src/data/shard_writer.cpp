#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "copus/core/error.h"
#include "copus/data/tokens.h"
#include "data/shard_format.h"
#include "data/xxh3.h"

namespace copus {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw IoError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

struct ShardWriter::State {
  std::string path, temporary;
  ShardHeader header;
  int fd = -1;
  std::vector<std::byte> buffer;
  std::unique_ptr<XXH3_state_t, FreeHash> hash{XXH3_createState()};

  ~State() {
    if (fd < 0) return;
    ::close(fd);
    ::unlink(temporary.c_str());
  }
  void write_all(const std::byte* data, std::size_t size, std::int64_t at) const;
  void flush();
  template <class Id>
  void append(std::span<const std::int32_t> ids);
  void sync_folder() const;
  std::int64_t written = 0;  // bytes, header included
};

void ShardWriter::State::write_all(const std::byte* data, std::size_t size, std::int64_t at) const {
  while (size > 0) {
    ssize_t const done = ::pwrite(fd, data, size, at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(temporary, "write");
    data += done;
    size -= static_cast<std::size_t>(done);
    at += done;
  }
}

void ShardWriter::State::flush() {
  XXH3_64bits_update(hash.get(), buffer.data(), buffer.size());
  write_all(buffer.data(), buffer.size(), written);
  written += static_cast<std::int64_t>(buffer.size());
  buffer.clear();
}

template <class Id>
void ShardWriter::State::append(std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    std::size_t const room = (kBufferBytes - buffer.size()) / sizeof(Id);
    std::span<const std::int32_t> const part = ids.first(std::min(room, ids.size()));
    std::size_t const at = buffer.size();
    buffer.resize(at + part.size() * sizeof(Id));
    auto* const out = reinterpret_cast<Id*>(buffer.data() + at);
    for (std::size_t i = 0; i < part.size(); ++i) out[i] = static_cast<Id>(part[i]);
    if (buffer.size() == kBufferBytes) flush();
    ids = ids.subspan(part.size());
  }
}

void ShardWriter::State::sync_folder() const {
  std::string const folder = std::filesystem::absolute(path).parent_path().string();
  int const dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) fail(folder, "open");
  int const result = ::fsync(dir);
  ::close(dir);
  if (result != 0) fail(folder, "sync");
}

ShardWriter::ShardWriter(const std::string& path, std::int64_t vocab, const std::string& tokenizer)
    : state_(std::make_unique<State>()) {
  COPUS_CHECK(vocab >= 1 && vocab <= detail::kMaxVocab, "a vocabulary has 1 to 2^31 - 1 ids");
  State& s = *state_;
  s.path = path;
  s.temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  s.header.vocab = vocab;
  s.header.token_bytes = detail::token_bytes_for(vocab);
  s.header.tokenizer = tokenizer;
  s.buffer.reserve(kBufferBytes);
  XXH3_64bits_reset(s.hash.get());
  s.fd = ::open(s.temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (s.fd < 0) fail(s.temporary, "create");
  s.written = detail::ids_offset(static_cast<std::int64_t>(tokenizer.size()));
}

ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

void ShardWriter::append(std::span<const std::int32_t> ids) {
  State& s = *state_;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= s.header.vocab) {
      throw ConfigError(fmt::format("{}: token {} is {}, outside the vocabulary of {}", s.path,
                                    s.header.tokens + static_cast<std::int64_t>(i), ids[i],
                                    s.header.vocab));
    }
  }
  if (s.header.token_bytes == 2) {
    s.append<std::uint16_t>(ids);
  } else {
    s.append<std::uint32_t>(ids);
  }
  s.header.tokens += static_cast<std::int64_t>(ids.size());
}

void ShardWriter::end_document() {
  ++state_->header.documents;
}
std::int64_t ShardWriter::tokens() const {
  return state_->header.tokens;
}

ShardHeader ShardWriter::finish() {
  State& s = *state_;
  COPUS_CHECK(s.fd >= 0, "a shard is finished once");
  s.flush();
  s.header.checksum = XXH3_64bits_digest(s.hash.get());
  std::vector<std::byte> const header = detail::encode_header(s.header);
  s.write_all(header.data(), header.size(), 0);
  if (::fsync(s.fd) != 0) fail(s.temporary, "sync");
  if (::rename(s.temporary.c_str(), s.path.c_str()) != 0) fail(s.path, "rename to");
  ::close(s.fd);
  s.fd = -1;
  s.sync_folder();
  return s.header;
}

}  // namespace copus
