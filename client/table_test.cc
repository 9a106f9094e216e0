#include "client/table.h"

#include <gtest/gtest.h>

#include "client/terminal.h"

namespace tidemark::client {
namespace {

TEST(Table, AlignsNumbersRightAndNamesLeft) {
  Table table({{"rank", Align::kRight}, {"site"}, {"bytes", Align::kRight}});
  table.Add({"0", "model.py:41", "8 MiB"});
  table.Add({"12", "a.py:1", "1.50 GiB"});
  EXPECT_EQ(table.Text(),
            "rank  site            bytes\n"
            "   0  model.py:41     8 MiB\n"
            "  12  a.py:1       1.50 GiB\n");
}

TEST(Table, AColumnWithoutTextIsLeftOut) {
  Table table({{"pid"}, {"pod"}, {"state"}});
  table.Add({"7", "", "alive"});
  table.Add({"8"});
  EXPECT_EQ(table.Text(2), "  pid  state\n  7    alive\n  8\n");
}

TEST(Table, ColourTakesNoRoom) {
  Table table({{"state"}, {"pid", Align::kRight}});
  table.Add({Ink::Coloured().Red("leak"), "1"});
  table.Add({"steady", "20"});
  EXPECT_EQ(table.Text(),
            "state   pid\n"
            "\033[1;31mleak\033[0m      1\n"
            "steady   20\n");
}

TEST(Table, MarkdownEscapesWhatWouldBreakIt) {
  Table table({{"site"}, {"bytes", Align::kRight}});
  table.Add({"a|b<c", "1 B"});
  EXPECT_EQ(table.Markdown(), "| site | bytes |\n|---|---:|\n| a\\|b&lt;c | 1 B |\n");
}

TEST(Terminal, ControlCharactersOfAJobDoNotReachTheReader) {
  EXPECT_EQ(Printable("evil\033[2Jname\n.py"), "evil?[2Jname?.py");
  EXPECT_EQ(Printable("gr\xc3\xbc\xc3\x9f.py"), "gr\xc3\xbc\xc3\x9f.py");
}

TEST(Terminal, AFileOrPipeGetsNoColour) {
  EXPECT_EQ(Ink::For(-1).Red("x"), "x");
  EXPECT_EQ(Ink::Coloured().Red(""), "");
}

}  // namespace
}  // namespace tidemark::client
