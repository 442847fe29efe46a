//! Threads that take whole pieces of work on the CPU, each with one thread inside, where libtorch would cut every operation in
//! pieces and let threads wait for each other at its end. What a piece is never depends on the number of threads, and what is
//! summed over pieces is summed in their order; so results do not depend on the number of threads either.

use std::any::Any;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Error, Result, anyhow};
use tch::{Device, Tensor};

use super::calls::text_of;

unsafe extern "C" {
    fn bella_on_workers(workers: i64, work: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> *mut c_char;
}

/// Returns the number of threads that take pieces of work.
pub fn threads() -> usize {
    tch::get_num_threads().max(1) as usize
}

/// The particles of work that is that of all of them at once.
const MANY: usize = 2;

/// Pieces of work, and the number of particles whose work they are.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub pieces: usize,
    pub particles: usize,
}

impl Load {
    /// Returns how many pieces are taken at the same time.
    pub fn at_once(self) -> usize {
        if self.is_left_to_libtorch() { 1 } else { threads().min(self.pieces) }
    }

    /// Returns whether libtorch's own threads take every operation of the pieces, which few pieces would leave idle. A few of libtorch's
    /// operations give other bits with another number of threads (products of few rows in f32, functions at the end of a thread's share), so
    /// that this is done for one particle alone, of which there are no more pieces to be had.
    fn is_left_to_libtorch(self) -> bool {
        self.particles == 1 && self.pieces > 1 && 2 * self.pieces < threads()
    }
}

/// The reason why a piece ended early.
enum Failure {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

/// Pieces of work that are taken one after the other.
struct Pieces<'a> {
    count: usize,
    work: &'a dyn Fn(usize) -> Result<()>,
    turns: &'a Turns,
    next: AtomicUsize,
    /// The failures with the numbers of their pieces.
    failed: Mutex<Vec<(usize, Failure)>>,
}

impl Pieces<'_> {
    /// Takes pieces until none is left, or one has failed.
    fn take(&self) {
        while !self.turns.stopped() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            let failure = match catch_unwind(AssertUnwindSafe(|| (self.work)(number))) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => Failure::Error(error),
                Err(payload) => Failure::Panic(payload),
            };
            locked(&self.failed).push((number, failure));
            self.turns.stop();
        }
    }
}

/// Called on each worker.
unsafe extern "C" fn take(data: *mut c_void) {
    // SAFETY: `data` is the address of pieces that outlive the call of `bella_on_workers`.
    unsafe { &*data.cast::<Pieces>() }.take();
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The order in which sums over pieces are made: pieces of one lane follow each other by their numbers, those of different lanes do
/// not wait for each other.
pub struct Turns {
    /// The number of pieces of each lane that have had their turn.
    done: Mutex<Vec<usize>>,
    changed: Condvar,
    stopped: AtomicBool,
}

/// The place of a piece in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub lane: usize,
    pub number: usize,
}

impl Turns {
    pub fn new(lanes: usize) -> Turns {
        Turns { done: Mutex::new(vec![0; lanes]), changed: Condvar::new(), stopped: AtomicBool::new(false) }
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends all waiting, since a piece has failed.
    fn stop(&self) {
        let _done = locked(&self.done);
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Runs `add` when the pieces before this one in its lane have had their turns. Nothing is added where a piece has failed.
    pub fn take(&self, turn: Turn, add: impl FnOnce()) {
        let mut done = locked(&self.done);
        while done[turn.lane] < turn.number {
            if self.stopped() {
                return;
            }
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        drop(done);
        add();
        locked(&self.done)[turn.lane] = turn.number + 1;
        self.changed.notify_all();
    }
}

/// Runs `work` on the numbers of the pieces, from 0 on. Threads take the numbers in this order, unless one particle has less than half as
/// many pieces as there are threads: the calling thread then takes all of them. If some fail, the others end, and the failure of the smallest
/// number is passed on: its error, or its panic. A piece may wait for smaller numbers by `turns`, which are used up.
///
/// # Errors
/// Fails if `work` fails, or if libtorch does.
///
/// # Safety
/// `work` is called by several threads at once, although it need not be `Sync`. What the calls share they must only read or lock:
/// tensors may be read and cloned, since libtorch counts references atomically; an `Rc` must not be cloned.
pub unsafe fn run(load: Load, turns: &Turns, work: &dyn Fn(usize) -> Result<()>) -> Result<()> {
    let count = load.pieces;
    if load.is_left_to_libtorch() {
        return (0..count).try_for_each(work);
    }
    let pieces = Pieces { count, work, turns, next: AtomicUsize::new(0), failed: Mutex::default() };
    // A single worker would have no parallel region around it, within which its operations keep to its thread.
    let workers = threads().min(count.max(2)) as i64;
    // SAFETY: the pieces outlive the call, the caller vouches for `work`, and `take` lets no panic out. The message is from malloc.
    unsafe {
        let message = bella_on_workers(workers, take, (&raw const pieces).cast_mut().cast());
        if !message.is_null() {
            return Err(anyhow!("{}", text_of(message)));
        }
    }
    let failed = pieces.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failed.into_iter().min_by_key(|(number, _)| *number) {
        None => Ok(()),
        Some((_, Failure::Error(error))) => Err(error),
        Some((_, Failure::Panic(payload))) => resume_unwind(payload),
    }
}

/// Returns what `work` gives for the numbers of the pieces, computed as [`run`] does.
///
/// # Errors
/// Fails as [`run`] does.
///
/// # Safety
/// As for [`run`].
pub unsafe fn each<T: Send>(load: Load, work: &dyn Fn(usize) -> Result<T>) -> Result<Vec<T>> {
    let found: Vec<Mutex<Option<T>>> = (0..load.pieces).map(|_| Mutex::new(None)).collect();
    let keep = |number: usize| {
        *locked(&found[number]) = Some(work(number)?);
        Ok(())
    };
    // SAFETY: the caller vouches for `work`, and results are locked.
    unsafe { run(load, &Turns::new(0), &keep)? };
    Ok(found.into_iter().filter_map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
}

/// Returns the products of the matrices `a: [G, m, K]` and `b: [G, K, l]`. On the CPU a thread takes whole products, so that their last
/// bits do not depend on the number of threads.
///
/// # Panics
/// Panics with libtorch's message, as its own call does.
pub fn products(a: &Tensor, b: &Tensor) -> Tensor {
    if a.device() != Device::Cpu {
        return a.bmm(b);
    }
    let load = Load { pieces: a.size()[0] as usize, particles: MANY };
    // SAFETY: the pieces read the two tensors.
    let found = unsafe { each(load, &|block| Ok(a.get(block as i64).mm(&b.get(block as i64)))) };
    Tensor::stack(&found.unwrap_or_else(|error| panic!("{error:#}")), 0)
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    /// Returns what `compute` gives with so many threads. Tests that share a process go on with as many as before.
    fn with_threads<T>(count: i32, compute: impl FnOnce() -> T) -> T {
        let before = tch::get_num_threads();
        tch::set_num_threads(count);
        let found = compute();
        tch::set_num_threads(before);
        found
    }

    #[test]
    fn products_have_the_same_bits_on_any_number_of_threads() {
        tch::manual_seed(3);
        let draw = |size: [i64; 3]| Tensor::randn(size, (Kind::Float, Device::Cpu));
        for [m, inner, l] in [[6, 6, 193], [10, 768, 10], [150, 7, 333]] {
            let (a, b) = (draw([3, m, inner]), draw([3, inner, l]));
            let [first, others @ ..] = [1, 2, 5, 16].map(|threads| with_threads(threads, || products(&a, &b)));
            assert!(others.iter().all(|found| found.equal(&first)), "{m} x {inner} x {l}");
            let exact = a.to_kind(Kind::Double).bmm(&b.to_kind(Kind::Double));
            assert!((first - exact).abs().max().double_value(&[]) < 1e-3);
        }
    }

    /// Runs pieces that share what may be shared.
    fn run_all(count: usize, turns: &Turns, work: &dyn Fn(usize) -> Result<()>) -> Result<()> {
        // SAFETY: the pieces of these tests share atomic numbers, and tensors that they read.
        unsafe { run(Load { pieces: count, particles: 2 }, turns, work) }
    }

    #[test]
    fn every_piece_is_taken_once_and_lanes_are_summed_in_their_order() {
        for threads in [1, 2, 5] {
            let (turns, order) = (Turns::new(3), Mutex::new(Vec::new()));
            let work = |number: usize| {
                // The earlier pieces of a lane take longer than the later ones.
                std::thread::sleep(std::time::Duration::from_micros(30 * (30 - number as u64)));
                turns.take(Turn { lane: number % 3, number: number / 3 }, || locked(&order).push(number));
                Ok(())
            };
            with_threads(threads, || run_all(30, &turns, &work)).unwrap();
            let order = order.into_inner().unwrap();
            for lane in 0..3 {
                let own: Vec<usize> = order.iter().copied().filter(|number| number % 3 == lane).collect();
                assert_eq!(own, (0..10).map(|number| 3 * number + lane).collect::<Vec<_>>(), "{threads} threads");
            }
        }
    }

    #[test]
    fn few_pieces_are_left_to_libtorch_where_they_are_those_of_one_particle() {
        let at_once = |(pieces, particles)| with_threads(6, || Load { pieces, particles }.at_once());
        assert_eq!([(2, 1), (3, 1), (1, 1), (2, 2), (8, 2)].map(at_once), [1, 3, 1, 2, 6]);
    }

    #[test]
    fn a_panic_or_an_error_ends_the_others_and_is_passed_on() {
        let failing = |at: usize, panics: bool| {
            let turns = Turns::new(1);
            let work = |number: usize| {
                if number == at && panics {
                    drop(Tensor::zeros([2], (Kind::Float, Device::Cpu)).reshape([5]));
                }
                anyhow::ensure!(number != at, "piece {number} failed");
                // All pieces of one lane: those behind the failed one wait for it.
                turns.take(Turn { lane: 0, number }, || assert!(number < at, "nothing is added behind a failed piece"));
                Ok(())
            };
            with_threads(3, || crate::base::tensor::guarded("step 7", "", || run_all(12, &turns, &work)))
        };
        assert_eq!(failing(4, false).unwrap_err().to_string(), "piece 4 failed");
        let error = failing(2, true).unwrap_err().to_string();
        assert!(error.starts_with("step 7: shape '[5]' is invalid"), "{error}");
        failing(12, false).unwrap();
    }

    #[test]
    fn an_operation_of_a_piece_keeps_to_its_thread_and_gradients_flow_there() {
        let weight = Tensor::ones([300, 300], (Kind::Float, Device::Cpu));
        let run = |work: &dyn Fn(usize) -> Result<()>| with_threads(4, || run_all(4, &Turns::new(0), work)).unwrap();
        let (tasks, found) =
            (|| std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count), Mutex::new(Vec::new()));
        run(&|_| {
            let x = Tensor::ones([300, 300], (Kind::Float, Device::Cpu)).set_requires_grad(true);
            let loss = tch::with_grad(|| x.matmul(&weight).gelu("none").sum(Kind::Float));
            let gradient = Tensor::run_backward(&[loss], &[&x], false, false).remove(0);
            locked(&found).push(gradient.sum(Kind::Double).double_value(&[]));
            Ok(())
        });
        let before = tasks();
        run(&|_| {
            drop(weight.matmul(&weight));
            Ok(())
        });
        assert_eq!(tasks(), before, "workers start no threads of their own");
        let found = found.into_inner().unwrap();
        assert!(found.len() == 4 && found.iter().all(|sum| (sum - 2.7e7).abs() < 1e3), "{found:?}");
    }
}
