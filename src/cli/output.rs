//! How output looks: coloured and aligned for a person at a terminal, tab-separated for a pipe.

use std::io::{self, Write};

/// What output goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Terminal,
    /// A terminal whose owner wants no colour.
    Colourless,
    Pipe,
}

/// What a text is to be seen as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Good,
    Bad,
    Odd,
    Strong,
    Weak,
    Plain,
}

impl Look {
    pub fn of(is_terminal: bool, colour_is_welcome: bool) -> Self {
        match (is_terminal, colour_is_welcome) {
            (true, true) => Self::Terminal,
            (true, false) => Self::Colourless,
            (false, _) => Self::Pipe,
        }
    }

    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Good => "32",
            Style::Bad => "1;31",
            Style::Odd => "33",
            Style::Strong => "1",
            Style::Weak => "2",
            Style::Plain => "",
        };
        if self == Self::Terminal && !code.is_empty() && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A piece of text in a table.
pub(super) type Cell = (Style, String);

/// Where a command writes what it was asked for.
pub(super) struct Output<'w> {
    writer: &'w mut dyn Write,
    look: Look,
}

impl<'w> Output<'w> {
    pub fn new(writer: &'w mut dyn Write, look: Look) -> Self {
        Self { writer, look }
    }

    /// One line, of pieces that follow each other directly.
    pub fn line(&mut self, pieces: &[(Style, &str)]) -> io::Result<()> {
        let line: String =
            pieces.iter().map(|(style, text)| self.look.paint(*style, &one_line(text))).collect();
        writeln!(self.writer, "{line}")
    }

    /// Text of several lines that is our own.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.writer.write_all(text.as_bytes())
    }

    /// One JSON value on one line.
    pub fn json(&mut self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        Ok(writeln!(self.writer, "{}", serde_json::to_string(value)?)?)
    }

    /// Rows of the same length, the first of them the heading.
    pub fn table<const N: usize>(&mut self, heading: [&str; N], rows: &[[Cell; N]]) -> io::Result<()> {
        let heading = heading.map(|text| (Style::Weak, text.to_owned()));
        let rows: Vec<&[Cell; N]> = std::iter::once(&heading).chain(rows).collect();
        let widths: Vec<usize> = (0..N)
            .map(|column| rows.iter().filter_map(|row| row.get(column)).map(width).max().unwrap_or(0))
            .collect();
        for row in rows {
            let mut line = String::new();
            for (column, (cell, width_of_column)) in row.iter().zip(&widths).enumerate() {
                line.push_str(&self.look.paint(cell.0, &one_line(&cell.1)));
                if column + 1 < N {
                    match self.look {
                        Look::Pipe => line.push('\t'),
                        _ => line.push_str(&" ".repeat(width_of_column - width(cell) + 2)),
                    }
                }
            }
            writeln!(self.writer, "{}", line.trim_end_matches(' '))?;
        }
        Ok(())
    }
}

fn width(cell: &Cell) -> usize {
    one_line(&cell.1).chars().count()
}

/// The text, escaped where it would move the cursor or end the line.
fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(look: Look, write: impl FnOnce(&mut Output<'_>) -> io::Result<()>) -> String {
        let mut bytes = Vec::new();
        write(&mut Output::new(&mut bytes, look)).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn table(look: Look) -> String {
        let rows = [
            [(Style::Good, "é"), (Style::Plain, "x\u{1b}[2J\n")],
            [(Style::Plain, "longer"), (Style::Bad, "")],
        ];
        written(look, |out| {
            out.table(["a", "b"], &rows.map(|row| row.map(|(style, text)| (style, text.to_owned()))))
        })
    }

    #[test]
    fn a_terminal_gets_aligned_columns_and_colours_if_they_are_welcome() {
        assert_eq!(table(Look::Colourless), "a       b\né       x\\u{1b}[2J\\n\nlonger\n");
        assert!(table(Look::Terminal).contains("\u{1b}[32mé\u{1b}[0m       x"));
    }

    #[test]
    fn a_pipe_gets_tabs_and_no_colour() {
        assert_eq!(table(Look::Pipe), "a\tb\né\tx\\u{1b}[2J\\n\nlonger\t\n");
    }
}
