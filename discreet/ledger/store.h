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

namespace discreet::ledger {

class Database;
class Statement;

// The file of a ledger: one SQLite database of three strict tables, and nothing in it that a leaf
// or a signature does not determine. See FORMAT.md. It holds no rule: state.h does.
//
// Rollback journal, synchronous=FULL, one writer: a lock on the file is held as long as the object
// lives. Deleted contents are overwritten. Errors as sqlite_impl.h says; a transaction that fails
// leaves the file as it was.
//
// A reader reads the bytes of this file and nothing that lies next to it, and changes nothing. Only
// a writer rolls a killed writer's transaction back; until then the file may read as damaged.
class Store {
 public:
  enum class Mode { kCreate, kWrite, kRead };
  // kCreate: kInvalidInput if the path exists. kWrite: kIoError if another process writes for
  // longer than `patience_ms`.
  Store(const std::filesystem::path& path, Mode mode, int patience_ms = 0);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  // Leaves in the order of their positions, from `begin` on. Bytes of a row that are no item come
  // as the content of one leaf, which nothing decodes.
  struct Leaf {
    std::uint64_t position;
    ByteView content;  // until the next one is read; empty if summarised
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
  // What a descriptor's hash in a leaf opens to.
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

  // Leaves to be written, end to end.
  struct Batch {
    Bytes bytes;
    std::vector<std::size_t> ends;
    std::vector<Opening> openings;
    void add(ByteView leaf);
    ByteView leaf(std::size_t i) const;
  };
  // Each is one durable transaction. summarise: leaves that give way to their hashes, by ascending
  // position.
  void append(std::uint64_t first, const Batch& batch);
  void sign(const Note& note, const std::vector<std::pair<std::uint64_t, Digest>>& summarise = {});
  void discard_from(std::uint64_t size);  // leaves that no note covers

  // Gives the file this name, durably. kInvalidInput if there is such a file: none is overwritten.
  void move_to(const std::filesystem::path& path);
  // Closes the file, so that others may write; and takes it up again, as the constructor.
  void let_go();
  void take_up(int patience_ms);

  // Forgets every page read so far, so that what follows comes from the disk.
  void reread();
  // Throws kMalformed for rows that no position or size can have, which nothing else reads.
  void check_ranges();
  // SQLite's own check of pages, cells and types. Throws kMalformed.
  void check_pages();
  // Every statement until the end of the snapshot sees the same file.
  void begin_snapshot();

 private:
  std::unique_ptr<Database> open();

  std::filesystem::path path_;
  Mode mode_;
  struct Lock;
  std::unique_ptr<Lock> lock_;  // released after the database is closed
  std::unique_ptr<Database> db_;
};

}  // namespace discreet::ledger
