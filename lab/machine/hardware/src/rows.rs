//! Lines one behind the other, which a core's prefetcher reads ahead.

/// Steps in one direction that make a row.
const STEPS_MIN: u32 = 2;
/// Rows that a core's prefetcher follows.
const ROWS: usize = 16;

/// Lines one behind the other, up or down.
#[derive(Clone, Copy, Debug)]
struct Row {
    last: u32,
    step: i32,
    steps: u32,
}

impl Row {
    fn of(line: u32) -> Row {
        Row {
            last: line,
            step: 0,
            steps: 0,
        }
    }
}

/// The rows of one core.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    rows: [Row; ROWS],
    next: usize,
}

impl Rows {
    pub(crate) fn new() -> Rows {
        Rows {
            rows: [Row::of(u32::MAX); ROWS],
            next: 0,
        }
    }

    /// Whether the line goes on a row of lines that is known for one; it is the row's last from now
    /// on, or the first of a new one.
    #[inline]
    pub(crate) fn go_on(&mut self, line: u32) -> bool {
        for row in &mut self.rows {
            let step = line.wrapping_sub(row.last) as i32;
            if step.unsigned_abs() == 1 {
                row.steps = if step == row.step { row.steps + 1 } else { 1 };
                (row.last, row.step) = (line, step);
                return row.steps >= STEPS_MIN;
            }
        }
        self.rows[self.next] = Row::of(line);
        self.next = (self.next + 1) % ROWS;
        false
    }
}
