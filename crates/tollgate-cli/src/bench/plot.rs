//! Latencies by percentile, drawn.

use std::fmt::Write;

use super::report::{Report, in_words};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 310.0;
const TOP: f64 = 40.0;

/// The percentages at the ticks: each next one leaves a tenth of what the last one left.
const TICKS: [f64; 5] = [0.0, 90.0, 99.0, 99.9, 99.99];

/// Draws the latencies of a load. To the right, each tick leaves a tenth of the requests of the last
/// one; upwards, each line is ten times as long.
pub(super) fn svg(report: &Report) -> String {
    let top_us = (report.latency_us(100.0).unwrap_or_default().max(10) as f64).log10().ceil();
    let x = |percentage: f64| {
        let nines = -(1.0 - percentage / 100.0).log10();
        LEFT + nines / 4.0 * (WIDTH - LEFT - 20.0)
    };
    let y = |micros: f64| BOTTOM - micros.max(1.0).log10() / top_us * (BOTTOM - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">Latency by percentile, {}</text>\n",
        escaped(report.url())
    );
    for tick in TICKS {
        let at = x(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"328\" text-anchor=\"middle\">{tick} %</text>"
        );
    }
    for power in 0..=top_us as u32 {
        let micros = 10_u64.pow(power);
        let at = y(micros as f64);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - 20.0,
            LEFT - 8.0,
            at + 4.0,
            in_words(micros)
        );
    }
    svg.push_str("<polyline fill=\"none\" stroke=\"#2060c0\" stroke-width=\"2\" points=\"");
    for step in 0..=160 {
        let percentage = 100.0 * (1.0 - 10_f64.powf(-f64::from(step) / 40.0));
        if let Some(micros) = report.latency_us(percentage) {
            let _ = write!(svg, "{:.1},{:.1} ", x(percentage), y(micros as f64));
        }
    }
    svg.push_str("\"/>\n</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
