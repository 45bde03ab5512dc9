//! Texts that grow in a thread of their own, while Python reads their pieces.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cusync_cli::embed::Failure;
use cusync_models::{Control, Event, Pieces, Request, Tokenizer, generate};
use pyo3::prelude::*;

use super::error::{argument, raised};
use super::model::{Opened, Room};

/// Time after which a wait looks for signals, such as that of Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(20);

/// Pieces that may wait for their reader.
const AHEAD: usize = 2;

/// Number of the text, piece of it, and reason of its end.
type Piece = (usize, String, Option<&'static str>);

/// Strings that end a text.
pub(crate) struct Stops(pub(crate) Vec<String>);

impl Stops {
    /// Where the first of them begins.
    fn find(&self, text: &str) -> Option<usize> {
        self.0.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min()
    }

    /// Length of the start of a text that no later piece can make part of one of them.
    fn settled(&self, text: &str) -> usize {
        let starts = text.char_indices().map(|(at, _)| at);
        let begins = |at: &usize| self.0.iter().any(|stop| stop.starts_with(&text[*at..]));
        starts.into_iter().find(begins).unwrap_or(text.len())
    }
}

/// A text, as far as it is generated.
#[derive(Default)]
struct Growing {
    pieces: Pieces,
    tokens: Vec<u32>,
    /// Text that the reader has.
    sent: String,
    /// Text that may begin a stop.
    held: String,
    stopped: bool,
}

impl Growing {
    /// Adds a token, and returns the text that can be read now.
    fn push(&mut self, text: &Tokenizer, token: u32, stops: &Stops) -> Result<String, cusync_models::Error> {
        self.tokens.push(token);
        self.held.push_str(&self.pieces.push(text, token)?);
        let end = stops.find(&self.held);
        self.stopped = end.is_some();
        let rest = self.held.split_off(end.unwrap_or_else(|| stops.settled(&self.held)));
        let piece = std::mem::replace(&mut self.held, rest);
        self.sent.push_str(&piece);
        Ok(piece)
    }

    /// The text that is left at the end.
    fn rest(&mut self, text: &Tokenizer, stops: &Stops) -> Result<String, cusync_models::Error> {
        if self.stopped {
            return Ok(String::new());
        }
        let all = text.text(&self.tokens)?;
        let mut rest = all.strip_prefix(self.sent.as_str()).unwrap_or(&self.held).to_owned();
        rest.truncate(stops.find(&rest).unwrap_or(rest.len()));
        Ok(rest)
    }
}

/// Texts that grow. Iterating gives tuples: the number of the text, a piece of it, and the reason of its end or
/// `None`.
#[pyclass(module = "cusync._cusync", frozen)]
pub(crate) struct Generation {
    running: Mutex<Option<Running>>,
}

struct Running {
    pieces: Receiver<Piece>,
    worker: JoinHandle<Result<(), Failure>>,
}

impl Running {
    /// Ends the generation within a token, and returns its error.
    fn end(self) -> Result<(), Failure> {
        drop(self.pieces);
        self.worker.join().unwrap_or_else(|_| {
            Err(argument("a fault of the library ended the generation", "open the model again"))
        })
    }
}

impl Generation {
    /// Starts a thread that generates, and puts the model back behind it.
    pub(crate) fn start(
        room: Room,
        mut opened: Box<Opened>,
        requests: Vec<Request>,
        text: Arc<Tokenizer>,
        stops: Stops,
    ) -> Generation {
        let (sender, pieces) = sync_channel(AHEAD);
        let worker = std::thread::spawn(move || {
            let outcome = work(&mut opened, &requests, &text, &stops, &sender);
            *room.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
            outcome
        });
        Generation { running: Mutex::new(Some(Running { pieces, worker })) }
    }

    fn take(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The next piece; `Timeout`: it takes longer.
    fn next(&self) -> Result<Piece, RecvTimeoutError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map_or(Err(RecvTimeoutError::Disconnected), |r| r.pieces.recv_timeout(PATIENCE))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if let Some(running) = self.take() {
            // Nobody is left to read an error.
            let _ = running.end();
        }
    }
}

#[pymethods]
impl Generation {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Piece>> {
        loop {
            let next = py.detach(|| self.next());
            if let Err(signal) = py.check_signals() {
                self.close(py)?;
                return Err(signal);
            }
            match next {
                Ok(piece) => return Ok(Some(piece)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.close(py).map(|()| None),
            }
        }
    }

    /// Ends the generation within a token; the model is free then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let ended = py.detach(|| self.take().map_or(Ok(()), Running::end));
        ended.map_err(|failure| raised(py, failure))
    }
}

/// Generates until all texts end or nobody reads them.
fn work(
    opened: &mut Opened,
    requests: &[Request],
    text: &Tokenizer,
    stops: &Stops,
    sender: &SyncSender<Piece>,
) -> Result<(), Failure> {
    let mut texts: Vec<Growing> = requests.iter().map(|_| Growing::default()).collect();
    let mut fault = None;
    generate(&mut opened.model, requests, |event| {
        let (number, piece, end) = match event {
            Event::Token { request, token } => (request, texts[request].push(text, token, stops), None),
            Event::End { request, reason } => {
                (request, texts[request].rest(text, stops), Some(reason.name()))
            }
        };
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                fault = Some(error);
                return Control::Stop;
            }
        };
        if (!piece.is_empty() || end.is_some()) && sender.send((number, piece, end)).is_err() {
            return Control::Stop;
        }
        if texts[number].stopped && end.is_none() { Control::Finish } else { Control::Continue }
    })?;
    fault.map_or(Ok(()), |error| Err(error.into()))
}
