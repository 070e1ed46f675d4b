//! Rows under headings, aligned; on a terminal READY in colour and MESSAGE cut to what fits.

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;

use super::controllers::Controllers;
use super::row::{self, HEADINGS, MESSAGE, READY};
use crate::output;

const GAP: usize = 3;

/// A message is never cut shorter than this; lines then wrap.
const SHORTEST_MESSAGE: usize = 20;

pub(super) fn render(objects: &[DynamicObject], controllers: Controllers) -> String {
    if objects.is_empty() {
        return "there are no objects of ours; `underpass plan -f FILE` shows what one would do\n".to_owned();
    }
    let now = Timestamp::now();
    let mut rows: Vec<_> = objects.iter().map(|object| row::cells(object, controllers, now)).collect();
    if let Some(columns) = output::terminal_width() {
        fit(&mut rows, columns);
    }
    lay_out(&rows, output::colours(output::stdout_is_terminal()))
}

/// Cuts messages so that the widest line has at most `columns` characters.
fn fit(rows: &mut [[String; 7]], columns: usize) {
    let widths = widths(rows);
    let others = widths.iter().sum::<usize>() - widths[MESSAGE] + GAP * (widths.len() - 1);
    let room = columns.saturating_sub(others).max(SHORTEST_MESSAGE);
    for row in rows {
        let message = &mut row[MESSAGE];
        if message.chars().count() > room {
            *message = message.chars().take(room - 1).chain(['…']).collect();
        }
    }
}

fn lay_out(rows: &[[String; 7]], colours: bool) -> String {
    let widths = widths(rows);
    let mut text = line(&HEADINGS.map(str::to_owned), &widths, false);
    text.extend(rows.iter().map(|row| line(row, &widths, colours)));
    text
}

fn widths(rows: &[[String; 7]]) -> [usize; 7] {
    std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or_default()
    })
}

fn line(row: &[String; 7], widths: &[usize; 7], colours: bool) -> String {
    let mut text = String::new();
    for (column, cell) in row.iter().enumerate() {
        let padding = if column + 1 < row.len() { widths[column] + GAP - cell.chars().count() } else { 0 };
        if column == READY && colours {
            text.push_str(&format!("\x1b[{}m{cell}\x1b[0m", colour(cell)));
        } else {
            text.push_str(cell);
        }
        text.push_str(&" ".repeat(padding));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn colour(ready: &str) -> u8 {
    match ready {
        "True" => 32,
        "False" => 31,
        _ => 33,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, ready: &str) -> [String; 7] {
        ["K", "", name, ready, "R", "m", "1s"].map(str::to_owned)
    }

    #[test]
    fn columns_are_aligned() {
        let text = lay_out(&[row("a", "True"), row("longer", "False")], false);
        assert_eq!(
            text,
            "KIND   NAMESPACE   NAME     READY   REASON   MESSAGE   AGE\n\
             K                  a        True    R        m         1s\n\
             K                  longer   False   R        m         1s\n"
        );
    }

    #[test]
    fn a_long_message_is_cut_to_the_terminal() {
        let mut rows = [row("a", "True"), row("b", "False")];
        rows[0][MESSAGE] = "x".repeat(500);
        fit(&mut rows, 100);
        let text = lay_out(&rows, false);
        assert_eq!(text.lines().map(|line| line.chars().count()).max(), Some(100));
        assert!(rows[0][MESSAGE].ends_with('…') && rows[1][MESSAGE] == "m");
        fit(&mut rows, 10);
        assert_eq!(rows[0][MESSAGE].chars().count(), SHORTEST_MESSAGE);
    }

    #[test]
    fn colours_do_not_shift_columns() {
        let plain = lay_out(&[row("a", "True")], false);
        let coloured = lay_out(&[row("a", "True")], true);
        assert_eq!(coloured.replace("\x1b[32m", "").replace("\x1b[0m", ""), plain);
    }
}
