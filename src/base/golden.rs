//! Golden numbers: what other code has computed, as JSON below `tests/fixtures`.

use serde_json::Value;
use tch::Tensor;

/// The numbers of one file.
pub struct Golden(Value);

impl Golden {
    /// Reads `tests/fixtures/authors/<name>.json`, which `scripts/make_method_goldens.py` writes by running the authors' code.
    pub fn of_authors(name: &str) -> Golden {
        Golden::of(&format!("authors/{name}"))
    }

    /// Reads `tests/fixtures/<name>.json`.
    pub fn of(name: &str) -> Golden {
        let path = format!("{}/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
        Golden(serde_json::from_slice(&std::fs::read(&path).expect(&path)).expect(&path))
    }

    /// Returns the value at a path such as `before/a`.
    pub fn value(&self, path: &str) -> &Value {
        self.0.pointer(&format!("/{path}")).unwrap_or_else(|| panic!("the golden has no {path}"))
    }

    pub fn number(&self, path: &str) -> f64 {
        self.value(path).as_f64().unwrap_or_else(|| panic!("{path} is no number"))
    }

    /// Returns nested lists of numbers as a tensor of their shape, in f64.
    pub fn tensor(&self, path: &str) -> Tensor {
        let (mut shape, mut numbers) = (Vec::new(), Vec::new());
        let mut first = self.value(path);
        while let Value::Array(rows) = first {
            shape.push(rows.len() as i64);
            first = &rows[0];
        }
        flatten(self.value(path), &mut numbers);
        Tensor::from_slice(&numbers).view(shape.as_slice())
    }
}

fn flatten(value: &Value, numbers: &mut Vec<f64>) {
    match value {
        Value::Array(rows) => rows.iter().for_each(|row| flatten(row, numbers)),
        value => numbers.push(value.as_f64().expect("a number")),
    }
}

/// Fails if two tensors differ by more than `bound` in any entry, or in their shape. Prints by how much they differ, which
/// `cargo nextest run --no-capture` shows.
#[track_caller]
pub fn near(found: &Tensor, expected: &Tensor, bound: f64) {
    assert_eq!(found.size(), expected.size());
    let difference = (found - expected).abs().max().double_value(&[]);
    eprintln!("{}: differs by {difference:e}", std::panic::Location::caller());
    assert!(difference <= bound, "differs by {difference:e}");
}
