#include "client/table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "client/terminal.h"

namespace tidemark::client {
namespace {

std::string MarkdownCell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|' || c == '\\') cell += '\\';
    cell += c == '<' ? "&lt;" : std::string(1, c);
  }
  return cell;
}

}  // namespace

void Table::Add(std::vector<std::string> cells) {
  assert(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::Text(size_t indent) const {
  std::vector<size_t> widths(columns_.size());
  bool titled = false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t body = 0;
    for (const auto& row : rows_) body = std::max(body, DisplayWidth(row[c]));
    if (body == 0) continue;
    widths[c] = std::max(body, DisplayWidth(columns_[c].title));
    titled |= !columns_[c].title.empty();
  }

  const auto line = [&](const auto& cell_of) {
    std::string text(indent, ' ');
    bool first = true;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] == 0) continue;
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - DisplayWidth(cell), ' ');
      if (!first) text += "  ";
      text += columns_[c].align == Align::kRight ? padding + cell : cell + padding;
      first = false;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };

  std::string text;
  if (titled) {
    text += line([&](size_t c) -> const std::string& { return columns_[c].title; });
  }
  for (const auto& row : rows_) {
    text += line([&](size_t c) -> const std::string& { return row[c]; });
  }
  return text;
}

std::string Table::Markdown() const {
  std::string text = "|";
  for (const Column& column : columns_) text += " " + MarkdownCell(column.title) + " |";
  text += "\n|";
  for (const Column& column : columns_) text += column.align == Align::kRight ? "---:|" : "---|";
  text += "\n";
  for (const auto& row : rows_) {
    text += "|";
    for (const std::string& cell : row) text += " " + MarkdownCell(cell) + " |";
    text += "\n";
  }
  return text;
}

}  // namespace tidemark::client
