// Aligned columns of text. The last column is never padded, so lines stay short.
#pragma once

#include <string>
#include <vector>

namespace tidemark::client {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // A row may have fewer cells than there are columns, never more.
  void Add(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }
  size_t rows() const { return rows_.size(); }

  // Each line begins with `indent` spaces and ends with a newline; the header line is left out when
  // every title is empty. Columns without any text are left out.
  std::string Text(size_t indent = 0) const;
  // A GitHub-flavoured Markdown table.
  std::string Markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tidemark::client
