#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"

namespace discreet {
class Database;
class Statement;
}  // namespace discreet

namespace discreet::ledger {

// The file of a ledger: one SQLite database of three strict tables. Leaves and signatures determine
// its whole content. FORMAT.md describes it. The store enforces no rules; state.h does.
//
// Rollback journal, synchronous=FULL, one writer: a writer holds a lock on the file until let_go()
// or destruction. Deleted contents are overwritten. Errors as in base/sqlite.h; a failed
// transaction leaves the file unchanged.
//
// A reader reads only the bytes of this file, no other file next to it, and changes nothing. Only a
// writer rolls back the transaction of a killed writer. Until then the file may read as damaged.
class Store {
 public:
  enum class Mode { kCreate, kWrite, kRead };
  // kCreate: throws kInvalidInput if the path exists. kWrite: throws kIoError if another process
  // writes for longer than `patience_ms`.
  Store(const std::filesystem::path& path, Mode mode, int patience_ms = 0);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  // Leaves in the order of their positions, from `begin` on. Bytes of a row that do not form an
  // item are returned as the content of one leaf, which cannot be decoded.
  struct Leaf {
    std::uint64_t position;
    ByteView content;  // valid until the next one is read; empty if summarised
    bool summarised;
    bool ends_row;
    Digest hash;  // of a summarised leaf
  };
  class Leaves {
   public:
    Leaves(Store& store, std::uint64_t begin);
    ~Leaves();
    bool next(Leaf& leaf);

   private:
    bool read(Leaf& leaf);
    std::unique_ptr<Statement> rows_;
    std::uint64_t begin_, position_ = 0;
    ByteView rest_;  // of the row
  };
  // Checkpoints in the order of their sizes.
  struct Note {
    std::uint64_t size;
    std::string text;
  };
  std::optional<Note> next_note(std::uint64_t above_size);
  std::optional<Note> last_note();
  // The data behind a descriptor's hash in a leaf.
  struct Opening {
    std::uint64_t position;  // of the admission
    Bytes descriptor, signature;
  };
  class Openings {
   public:
    explicit Openings(Store& store);
    ~Openings();
    bool next(Opening& opening);

   private:
    std::unique_ptr<Statement> rows_;
  };
  std::optional<Opening> opening(std::uint64_t position);

  // Leaves to write, concatenated.
  struct Batch {
    Bytes bytes;
    std::vector<std::size_t> ends;
    std::vector<Opening> openings;
    void add(ByteView leaf);
    ByteView leaf(std::size_t i) const;
  };
  // Each function is one durable transaction. summarise: leaves to replace by their hashes, in
  // ascending order of positions.
  void append(std::uint64_t first, const Batch& batch);
  void sign(const Note& note, const std::vector<std::pair<std::uint64_t, Digest>>& summarise = {});
  void discard_from(std::uint64_t size);  // deletes leaves that no note covers

  // Renames the file durably. Throws kInvalidInput if a file of that name exists; nothing is
  // overwritten.
  void move_to(const std::filesystem::path& path);
  // let_go closes the file, so that other processes may write. take_up opens it again, as the
  // constructor does.
  void let_go();
  void take_up(int patience_ms);

  // Discards every cached page, so that later reads come from disk.
  void reread();
  // Throws kMalformed for rows with impossible positions or sizes, which no other function reads.
  void check_ranges();
  // SQLite's own check of pages, cells and types. Throws kMalformed.
  void check_pages();
  // For readers: makes all statements until the end of the snapshot see the same file. A writer
  // commits leaves before the note that signs them; while one is at work between the two, this
  // waits for the note, up to kPatienceMs.
  void begin_snapshot();
  static constexpr int kPatienceMs = 10'000;

 private:
  std::unique_ptr<Database> open();
  bool has_unsigned_tail();  // leaves follow the last note
  bool has_writer();

  std::filesystem::path path_;
  Mode mode_;
  struct Lock;
  struct Probe;
  std::unique_ptr<Lock> lock_;  // released after the database is closed
  std::unique_ptr<Probe> probe_;
  std::unique_ptr<Database> db_;
};

}  // namespace discreet::ledger
