//! Batches that worker threads decode ahead of their consumer. The order and the bytes depend on the request alone,
//! never on the number of workers.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};

use super::augment::{Seen, Views};
use super::inputs::Inputs;

/// Images with the views in which training sees them.
pub struct Source {
    pub images: Inputs,
    /// The random views. `None` if the images are not augmented.
    pub views: Option<Views>,
}

/// One image of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    pub image: u32,
    pub view: View,
}

/// The view of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The image as evaluation sees it.
    Plain,
    /// A random view, if the source augments.
    Random(Seen),
}

impl Source {
    /// Returns the image of one pick, `[3, H, W]`. It is a pure function of the seed and the pick.
    fn image(&self, pick: Pick) -> Result<Vec<u8>> {
        let i = pick.image as usize;
        match (&self.views, pick.view) {
            (Some(views), View::Random(seen)) => self.images.view(i, views, seen),
            _ => self.images.image(i),
        }
    }
}

/// Reads or decodes the images of each batch and yields bytes `[B, 3, H, W]` in the order of `batches`. At most `depth`
/// batches (and at least one) are in memory or in progress at a time. If a file cannot be decoded, its batch is an
/// error that names the file, and the iterator can still be used. Dropping the iterator stops each worker after its
/// current image.
pub fn stream(
    source: Arc<Source>,
    batches: impl IntoIterator<Item = Vec<Pick>, IntoIter: Send + 'static>,
    workers: usize,
    depth: usize,
) -> Batches {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            requests: Box::new(batches.into_iter().fuse()),
            current: None,
            started: 0,
            limit: depth.max(1) as u64,
            stopped: false,
        }),
        room: Condvar::new(),
    });
    let (sender, receiver) = channel();
    let spawn = |_| {
        let (shared, source, sender) = (shared.clone(), source.clone(), sender.clone());
        std::thread::spawn(move || work(&shared, &source, &sender))
    };
    let workers = (0..workers.max(1)).map(spawn).collect();
    Batches { shared, receiver, workers, pending: BTreeMap::new(), next: 0 }
}

/// The iterator that [`stream`] returns.
pub struct Batches {
    shared: Arc<Shared>,
    receiver: Receiver<Done>,
    workers: Vec<JoinHandle<()>>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

struct Shared {
    state: Mutex<State>,
    room: Condvar,
}

struct State {
    requests: Box<dyn Iterator<Item = Vec<Pick>> + Send>,
    current: Option<(Arc<Vec<Pick>>, usize)>,
    /// The number of batches taken from `requests`. The batch in `current` has the number `started - 1`.
    started: u64,
    /// The number of batches that may be started before the consumer takes another one.
    limit: u64,
    stopped: bool,
}

/// One image to decode, at `position` of batch `batch`.
struct Task {
    batch: u64,
    picks: Arc<Vec<Pick>>,
    position: usize,
}

/// A decoded image. An empty batch has no image and is reported with `image = None`.
struct Done {
    batch: u64,
    size: usize,
    image: Option<(usize, Result<Vec<u8>>)>,
}

struct Pending {
    images: Vec<Option<Result<Vec<u8>>>>,
    missing: usize,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The iterator of requests belongs to the caller and may panic. `stopped` must still be set then.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Returns the next image to decode, after waiting for room. `None` if there is nothing left to do.
    fn claim(&self, sender: &Sender<Done>) -> Option<Task> {
        // The lock is poisoned if the iterator of requests panicked; its further results could not be trusted.
        let mut state = self.state.lock().ok()?;
        loop {
            if state.stopped {
                return None;
            }
            if let Some((picks, position)) = state.current.take() {
                let task = Task { batch: state.started - 1, picks, position };
                if position + 1 < task.picks.len() {
                    state.current = Some((task.picks.clone(), position + 1));
                }
                return Some(task);
            }
            if state.started >= state.limit {
                state = self.room.wait(state).ok()?;
                continue;
            }
            let picks = state.requests.next()?;
            state.started += 1;
            if picks.is_empty() {
                let batch = state.started - 1;
                sender.send(Done { batch, size: 0, image: None }).ok()?;
            } else {
                state.current = Some((Arc::new(picks), 0));
            }
        }
    }
}

fn work(shared: &Shared, source: &Source, sender: &Sender<Done>) {
    while let Some(task) = shared.claim(sender) {
        let image = source.image(task.picks[task.position]);
        let (batch, size) = (task.batch, task.picks.len());
        if sender.send(Done { batch, size, image: Some((task.position, image)) }).is_err() {
            return;
        }
    }
}

impl Batches {
    /// Stores an image in its batch.
    fn accept(&mut self, done: Done) {
        let pending = self
            .pending
            .entry(done.batch)
            .or_insert_with(|| Pending { images: (0..done.size).map(|_| None).collect(), missing: done.size });
        if let Some((position, image)) = done.image {
            pending.images[position] = Some(image);
            pending.missing -= 1;
        }
    }

    /// Returns the next batch if it is complete.
    fn take(&mut self) -> Option<Result<Vec<u8>>> {
        if self.pending.get(&self.next)?.missing > 0 {
            return None;
        }
        let pending = self.pending.remove(&self.next)?;
        self.next += 1;
        lock(&self.shared.state).limit += 1;
        self.shared.room.notify_all();
        let images: Result<Vec<_>> = pending.images.into_iter().flatten().collect();
        Some(images.map(|images| images.concat()))
    }

    /// Returns whether a worker ended by a panic. The workers are joined, so later calls return `false`.
    fn panicked(&mut self) -> bool {
        let ended: Vec<_> = self.workers.drain(..).map(JoinHandle::join).collect();
        ended.iter().any(Result::is_err)
    }
}

impl Iterator for Batches {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.take() {
                return Some(batch);
            }
            match self.receiver.recv() {
                Ok(done) => self.accept(done),
                // All workers have ended: the requests are exhausted, or the requests or a decoder panicked.
                Err(_) => return self.panicked().then(|| Err(anyhow!("a thread that decodes images panicked"))),
            }
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        lock(&self.shared.state).stopped = true;
        self.shared.room.notify_all();
        for worker in self.workers.drain(..) {
            // During a drop, a panic of a worker cannot be reported.
            drop(worker.join());
        }
    }
}

#[cfg(test)]
mod tests;
