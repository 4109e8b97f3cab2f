//! Tables as people and Markdown read them.

use crate::row::{Measured, Target};

const HEAD: [&str; 6] = ["what", "tollgate", "beside", "", "ratio", "target"];

pub(crate) fn render(rows: &[Measured]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.iter().map(cells));
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut table = String::new();
    for (index, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            table.push_str(&format!("| {cell:<width$} "));
        }
        table.push_str("|\n");
        if index == 0 {
            for width in &widths {
                table.push_str(&format!("| {} ", "-".repeat((*width).max(3))));
            }
            table.push_str("|\n");
        }
    }
    table
}

fn cells(row: &Measured) -> [String; HEAD.len()] {
    let unit = row.unit.name();
    let missed = if row.is_kept() { "" } else { " MISSED" };
    let target = match row.target {
        Target::None => "-".to_owned(),
        Target::Ratio(least) => format!(">= {least:.2}{missed}"),
        Target::AtMost(most) => format!("<= {most}{missed}"),
    };
    let [name, figure_of_other, ratio] = match &row.other {
        Some(other) => [
            other.name.to_owned(),
            format!("{} {unit}", figure(other.figure)),
            format!("{:.2} ({:.2} - {:.2})", other.ratio, other.ratios.0, other.ratios.1),
        ],
        None => ["-"; 3].map(str::to_owned),
    };
    let ours = format!("{} {unit}", figure(row.ours));
    [row.what.clone(), ours, name, figure_of_other, ratio, target]
}

/// Writes a figure with as many digits as it is worth.
fn figure(figure: f64) -> String {
    if figure < 100.0 { format!("{figure:.1}") } else { format!("{figure:.0}") }
}
