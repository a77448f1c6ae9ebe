//! The terminal of the live view: its keys one by one, a screen of its own, and the former content
//! afterwards, however the view ends.
//!
//! Our own, because the view draws lines of text with few styles, for which the crates that draw on
//! terminals bring 35 packages.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use super::cells::{Buffer, Colour, Style};
use super::keys::{Key, KeyReader};

/// The size of a terminal that does not know its own.
const UNKNOWN_SIZE: (u16, u16) = (80, 24);

/// Another screen, without a cursor; and the former one.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// What is to be restored.
static FORMER: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// The terminal while it shows the view.
pub(crate) struct Terminal {
    /// What it shows; none before the first drawing.
    shown: Option<Buffer>,
}

/// Columns and rows of the terminal at standard output.
pub(crate) fn size() -> io::Result<(u16, u16)> {
    let size = tcgetwinsize(io::stdout())?;
    Ok(if size.ws_col == 0 || size.ws_row == 0 { UNKNOWN_SIZE } else { (size.ws_col, size.ws_row) })
}

/// The terminal for keys: standard input, or the one that controls the process if standard input is
/// none.
fn keyboard() -> io::Result<File> {
    if io::stdin().is_terminal() {
        return Ok(File::from(rustix::io::dup(io::stdin())?));
    }
    File::open("/dev/tty")
}

impl Terminal {
    /// Takes the terminal. It is restored when this value is dropped, and before the message of a
    /// panic.
    pub fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                next(panic);
            }));
        });
        let keyboard = keyboard()?;
        let former = tcgetattr(&keyboard)?;
        let mut raw = former.clone();
        raw.make_raw();
        tcsetattr(&keyboard, OptionalActions::Now, &raw)?;
        *FORMER.lock().unwrap_or_else(PoisonError::into_inner) = Some((keyboard, former));
        let terminal = Terminal { shown: None };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Shows what `draw` draws on a blank screen. Only rows that have changed are written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        let (width, height) = size()?;
        let mut buffer = Buffer::blank(width, height);
        draw(&mut buffer);
        write(&changes(self.shown.as_ref(), &buffer))?;
        self.shown = Some(buffer);
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal, once.
fn restore() {
    let former = FORMER.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((keyboard, former)) = former {
        // A terminal that is gone needs neither.
        let _ = write(LEAVE);
        let _ = tcsetattr(keyboard, OptionalActions::Now, &former);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Keys of the terminal. Reading them blocks, so a thread of its own reads them until the process
/// ends.
pub(crate) fn keys(capacity: usize) -> io::Result<mpsc::Receiver<io::Result<Key>>> {
    let mut keyboard = keyboard()?;
    let (sender, keys) = mpsc::channel(capacity);
    std::thread::spawn(move || {
        let (mut reader, mut bytes) = (KeyReader::default(), [0; 256]);
        loop {
            let read = match keyboard.read(&mut bytes) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other,
            };
            let (keys, is_last) = match read {
                Ok(length) => (reader.read(&bytes[..length]).into_iter().map(Ok).collect(), false),
                Err(error) => (vec![Err(error)], true),
            };
            if keys.into_iter().any(|key| sender.blocking_send(key).is_err()) || is_last {
                return;
            }
        }
    });
    Ok(keys)
}

/// The bytes that make a terminal show `after` instead of `before`.
fn changes(before: Option<&Buffer>, after: &Buffer) -> String {
    let before = before.filter(|before| before.area == after.area);
    let mut sent = if before.is_none() { "\x1b[0m\x1b[2J".to_owned() } else { String::new() };
    for y in 0..after.area.height {
        if before.is_some_and(|before| before.row(y) == after.row(y)) {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(sent, "\x1b[{};1H", y + 1);
        let mut style = Style::PLAIN;
        for cell in after.row(y) {
            if cell.style != style {
                style = cell.style;
                sent += &rendition(style);
            }
            sent += &cell.symbol;
        }
        if style != Style::PLAIN {
            sent += "\x1b[0m";
        }
    }
    sent
}

/// The sequence that chooses a style, whatever the one before (ECMA-48 §8.3.117).
fn rendition(style: Style) -> String {
    let colour = style.colour.map(|colour| match colour {
        Colour::Red => "31",
        Colour::Green => "32",
        Colour::Yellow => "33",
        Colour::Blue => "34",
        Colour::Cyan => "36",
        Colour::Grey => "90",
    });
    let set = [(style.is_bold, "1"), (style.is_dim, "2"), (style.is_reversed, "7")];
    let set = set.into_iter().filter_map(|(is_set, code)| is_set.then_some(code));
    let codes: Vec<_> = std::iter::once("0").chain(set).chain(colour).collect();
    format!("\x1b[{}m", codes.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_that_have_changed_are_written() {
        let mut first = Buffer::blank(3, 2);
        first.write(0, 0, "ab", Style { colour: Some(Colour::Red), ..Style::BOLD });
        assert_eq!(
            changes(None, &first),
            "\x1b[0m\x1b[2J\x1b[1;1H\x1b[0;1;31mab\x1b[0m \x1b[2;1H   "
        );
        assert_eq!(changes(Some(&first), &first), "");
        let mut second = first.clone();
        second.write(0, 1, "日", Style::REVERSED);
        assert_eq!(changes(Some(&first), &second), "\x1b[2;1H\x1b[0;7m日\x1b[0m ");
        assert!(
            changes(Some(&Buffer::blank(4, 2)), &second).starts_with("\x1b[0m\x1b[2J"),
            "another size"
        );
    }
}
