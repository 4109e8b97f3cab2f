//! One plot as SVG, which reads well on a light and on a dark page.

use std::fmt::Write;
use std::time::Duration;

use super::Plot;
use super::load::{self, Admitted};
use super::svg::{STYLE, push, text};

const WIDTH: u32 = 740;
const HEIGHT: u32 = 276;

/// The corner between the axes.
const LEFT: u32 = 46;
const BOTTOM: u32 = 232;

/// How wide a bar of 100 ms and how high a request is.
const BIN_WIDTH: u32 = 9;
const BIN: Duration = Duration::from_millis(100);
const UNIT_HEIGHT: u32 = 8;
const UNITS_MAX: usize = 21;

const LIMIT: usize = 10;

/// Draws a plot.
pub(super) fn draw(plot: &Plot, admitted: &Admitted) -> String {
    let offered: Vec<_> = load::offered().collect();
    let summary = format!(
        "{} of {} requests admitted, at most {} {}",
        admitted.starts().len(),
        offered.len(),
        admitted.peak(plot.counts_for),
        plot.peak
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n  <title>{}</title>\n  \
         <desc>{summary}.</desc>\n{STYLE}  \
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n",
        plot.title
    );
    head(&mut svg, plot, &summary);
    axes(&mut svg);
    bars(&mut svg, "offered", &offered);
    bars(&mut svg, "bar", admitted.starts());
    line(&mut svg, &admitted.counts(plot.counts_for));
    svg.push_str("</svg>\n");
    svg
}

/// The title, what came of it, and the key.
fn head(svg: &mut String, plot: &Plot, summary: &str) {
    text(svg, "title", (LEFT, 22), plot.title);
    text(svg, "end", (WIDTH - 19, 22), summary);
    for (x, class, label) in
        [(LEFT, "offered", "offered per 100 ms"), (LEFT + 150, "bar", plot.bars)]
    {
        push(
            svg,
            format_args!("<rect class=\"{class}\" x=\"{x}\" y=\"34\" width=\"10\" height=\"10\"/>"),
        );
        text(svg, "key", (x + 15, 43), label);
    }
    for (x, class, label) in [(LEFT + 310, "limit", "limit"), (LEFT + 395, "line", plot.line)] {
        push(svg, format_args!("<path class=\"{class}\" d=\"M{x} 39h22\"/>"));
        text(svg, "key", (x + 27, 43), label);
    }
}

fn axes(svg: &mut String) {
    let right = x_of(load::LENGTH);
    for units in (0..=20).step_by(5) {
        let y = y_of(units);
        let class = match units {
            0 => "axis",
            LIMIT => "limit",
            _ => "grid",
        };
        push(svg, format_args!("<path class=\"{class}\" d=\"M{LEFT} {y}H{right}\"/>"));
        text(svg, "end", (LEFT - 8, y + 4), &units.to_string());
    }
    for second in 0..=7 {
        let x = LEFT + second * 10 * BIN_WIDTH;
        push(svg, format_args!("<path class=\"axis\" d=\"M{x} {BOTTOM}v5\"/>"));
        text(svg, "middle", (x, BOTTOM + 20), &second.to_string());
    }
    text(svg, "middle", (LEFT + 337, BOTTOM + 38), "seconds");
    push(
        svg,
        format_args!(
            "<text class=\"middle\" transform=\"translate(14 {}) rotate(-90)\">requests</text>",
            BOTTOM - 84
        ),
    );
}

/// One bar for each 100 ms in which something happened, cut off at the top with its number beside.
fn bars(svg: &mut String, class: &str, instants: &[Duration]) {
    let bin_of = |instant: &Duration| u32::try_from(instant.as_micros() / BIN.as_micros());
    let mut rest: Vec<_> = instants.iter().filter_map(|instant| bin_of(instant).ok()).collect();
    rest.sort_unstable();
    for bin in rest.chunk_by(|one, other| one == other) {
        let (index, count) = (bin[0], bin.len());
        let (x, y) = (LEFT + index * BIN_WIDTH + 1, y_of(count.min(UNITS_MAX)));
        push(
            svg,
            format_args!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>",
                BIN_WIDTH - 2,
                BOTTOM - y
            ),
        );
        if count > UNITS_MAX {
            text(svg, "key", (x + BIN_WIDTH, y + 10), &count.to_string());
        }
    }
}

/// A line that steps at each instant from which another number counts.
fn line(svg: &mut String, counts: &[(Duration, usize)]) {
    let mut path = format!("M{LEFT} {BOTTOM}");
    for (instant, count) in counts.iter().take_while(|(instant, _)| *instant <= load::LENGTH) {
        // Writing to a String cannot fail.
        let _ = write!(path, "H{}V{}", x_of(*instant), y_of(*count));
    }
    push(svg, format_args!("<path class=\"line\" d=\"{path}H{}\"/>", x_of(load::LENGTH)));
}

/// The place of an instant, to a tenth of a pixel.
fn x_of(instant: Duration) -> String {
    let tenths =
        instant.as_micros() * 10 * u128::from(BIN_WIDTH) / BIN.as_micros() + 10 * u128::from(LEFT);
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}

fn y_of(units: usize) -> u32 {
    BOTTOM.saturating_sub(u32::try_from(units).unwrap_or(u32::MAX).saturating_mul(UNIT_HEIGHT))
}
