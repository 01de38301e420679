#include "discreet/run/secret_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"

namespace discreet::run {
namespace {

bool same(const random::Key& a, const random::Key& b) {
  return std::ranges::equal(a.secret_bytes(), b.secret_bytes());
}

TEST(Secret, IsReadBackAndIsNeverTheSameTwice) {
  const Folder folder;
  const random::Key one = create_secret(folder / "one");
  const random::Key two = create_secret(folder / "two");
  EXPECT_TRUE(same(load_secret(folder / "one"), one));
  EXPECT_FALSE(same(one, two));
}

TEST(Secret, IsForItsOwnerOnlyAndRefusedOtherwise) {
  const Folder folder;
  create_secret(folder / "key");
  struct stat status {};
  ASSERT_EQ(::stat((folder / "key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ::chmod((folder / "key").c_str(), 0644);
  try {
    load_secret(folder / "key");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.sentence().find("chmod 600"), std::string::npos);
  }
}

TEST(Secret, IsNeverReplaced) {
  const Folder folder;
  const random::Key key = create_secret(folder / "key");
  EXPECT_THROW(create_secret(folder / "key"), Error);
  EXPECT_TRUE(same(load_secret(folder / "key"), key));
}

TEST(Secret, LeavesNoFileWhenTheDiskIsFull) {
  const Folder folder;
  {
    const FullDisk full(10);
    EXPECT_THROW(create_secret(folder / "key"), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "key"));
}

TEST(Secret, IsRefusedWhenMalformedWithoutQuotingIt) {
  const Folder folder;
  const std::string digits(64, 'a');
  for (const std::string& text :
       {std::string(), digits, "discreet-secret-1 " + digits, "discreet-secret-2 " + digits + "\n",
        "discreet-secret-1 " + std::string(63, 'a') + "g\n", "discreet-secret-1 " + digits + "00\n",
        std::string(5000, 'a')}) {
    write_atomically(folder / "key", bytes_of(text), Access::kOwner);
    try {
      load_secret(folder / "key");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMalformed);
      EXPECT_EQ(error.sentence().find("aaaa"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace discreet::run
