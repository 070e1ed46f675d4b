//! The figures as bars, one panel per measure, in SVG written by hand: no library is worth a few panels.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Contender, Results, number};

const PANEL_WIDTH: f64 = 360.0;
const PANEL_HEIGHT: f64 = 196.0;
/// For the longest name of a contender.
const LABEL_WIDTH: f64 = 110.0;
const BAR_HEIGHT: f64 = 20.0;
/// The longest bar; beside it stands its figure.
const BAR_WIDTH: f64 = 180.0;

/// All panels, two beside each other.
pub(super) fn svg<C: Contender, M: Copy + Ord + Serialize>(results: &Results<C, M>, panels: &[(M, &str)]) -> String {
    let (width, height) = (2.0 * PANEL_WIDTH, panels.len().div_ceil(2) as f64 * PANEL_HEIGHT);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (index, (measure, title)) in panels.iter().enumerate() {
        let (x, y) = ((index % 2) as f64 * PANEL_WIDTH, (index / 2) as f64 * PANEL_HEIGHT);
        let _ = writeln!(
            text,
            "<g transform=\"translate({x} {y})\">\n<text x=\"10\" y=\"22\" font-weight=\"bold\">{title}, less is better</text>"
        );
        bars(&mut text, results, *measure);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn bars<C: Contender, M: Copy + Ord + Serialize>(text: &mut String, results: &Results<C, M>, measure: M) {
    let values: Vec<_> =
        results.contenders().filter_map(|contender| Some((contender, results.median(contender, measure)?))).collect();
    let largest = values.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    for (row, (contender, value)) in values.iter().enumerate() {
        let y = 34.0 + row as f64 * (BAR_HEIGHT + 6.0);
        let length = value / largest * BAR_WIDTH;
        let colour = if *contender == C::OURS { "#0a7d4f" } else { "#9aa5b1" };
        let (middle, end) = (y + BAR_HEIGHT - 6.0, LABEL_WIDTH + length + 6.0);
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{colour}\"/>\
             <text x=\"{end:.1}\" y=\"{middle}\">{figure}</text>",
            x = LABEL_WIDTH - 6.0,
            name = contender.name(),
            figure = number(*value)
        );
    }
}
