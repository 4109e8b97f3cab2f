//! The outcomes as aligned text.

use std::fmt::Write;

use crate::scenario::{Outcome, Scenario};

/// Prints one row per scenario; every column is as wide as its widest cell.
pub(crate) fn render(
    names: &[[&'static str; 2]],
    rows: &[(Scenario, Vec<Option<Outcome>>)],
) -> String {
    let mut cells: Vec<Vec<String>> = (0..2)
        .map(|line| {
            let head = if line == 0 { ["scenario", "promised"] } else { ["", ""] };
            let names = names.iter().map(|name| name[line]);
            head.into_iter().chain(names).map(str::to_owned).collect()
        })
        .collect();
    for (scenario, outcomes) in rows {
        let row = [scenario.title(), scenario.promised()].map(str::to_owned);
        cells.push(
            row.into_iter().chain(outcomes.iter().map(|outcome| cell(outcome.as_ref()))).collect(),
        );
    }
    let widths: Vec<usize> = (0..names.len() + 2)
        .map(|column| cells.iter().map(|row| row[column].len()).max().unwrap_or_default())
        .collect();
    cells.iter().map(|row| line(row, &widths)).collect()
}

fn cell(outcome: Option<&Outcome>) -> String {
    outcome.map_or_else(
        || "-".to_owned(),
        |outcome| match outcome.deviation() {
            0 => outcome.admitted.to_string(),
            off => format!("{} ({off:+})", outcome.admitted),
        },
    )
}

/// The first column to the left, the numbers to the right.
fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        // Writing to a string cannot fail.
        let _ = match column {
            0 => write!(line, "{cell:<width$}"),
            _ => write!(line, "  {cell:>width$}"),
        };
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_what_passed_and_how_far_it_is_off() {
        let outcome = |admitted| Some(Outcome { admitted, promised: 10..=11 });
        let rows = [(Scenario::Idle, vec![outcome(11), outcome(17), outcome(9), None])];
        let names = [["a", "memory"], ["b", ""], ["c", ""], ["d", "redis"]];
        let table = render(&names, &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
        assert!(lines[2].ends_with("10      11  17 (+6)  9 (-1)      -"), "{table}");
    }
}
