//! Checks the numbers by which code names types of tensors, such as the 6 of `torch.to(x, 6)`.
//!
//! libtorch looks a type up by its number without checking it: one that it does not have ends the process.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::tokens::Token;

/// The largest number of a type: libtorch's `UInt64`.
const LARGEST: u64 = 29;

/// Checks every number that an operator takes as a type, as it stands or by the name that it was given.
///
/// # Errors
/// Fails with the first number that names no type.
pub fn check(tokens: &[Token]) -> Result<()> {
    let mut names = BTreeSet::new();
    for at in 0..tokens.len() {
        if let [Token::Name("dtype"), Token::Sign('='), ..] = tokens[at..] {
            check_argument(argument(&tokens[at + 2..]), &mut names)?;
        }
        let [Token::Name(name), Token::Sign('('), ..] = tokens[at..] else { continue };
        // In `x.to(…)` and `torch.to(x, …)`, no number among the arguments is larger than one of a type.
        let first = match name {
            "to" => 0,
            "softmax" | "log_softmax" => 2,
            _ => continue,
        };
        for argument in arguments(&tokens[at + 2..]).skip(first) {
            check_argument(argument, &mut names)?;
        }
    }
    check_given(tokens, &names)
}

/// Checks an argument that is a number, and collects one that is a name.
fn check_argument<'a>(argument: &[Token<'a>], names: &mut BTreeSet<&'a str>) -> Result<()> {
    match *argument {
        [Token::Number(number)] => check_number(number),
        [Token::Sign('-'), Token::Number(number)] => check_number(&format!("-{number}")),
        [Token::Name(name)] => {
            names.insert(name);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks the numbers that are given to names: what follows each `name =` and `name : int =`.
fn check_given(tokens: &[Token], names: &BTreeSet<&str>) -> Result<()> {
    for at in 0..tokens.len() {
        let value = match tokens[at..] {
            [Token::Name(name), Token::Sign('='), ..] if names.contains(name) => &tokens[at + 2..],
            [Token::Name(name), Token::Sign(':'), Token::Name("int"), Token::Sign('='), ..] if names.contains(name) => {
                &tokens[at + 4..]
            }
            _ => continue,
        };
        match *value {
            [Token::Number(number), Token::LineEnd, ..] => check_number(number)?,
            [Token::Sign('-'), Token::Number(number), ..] => check_number(&format!("-{number}"))?,
            _ => {}
        }
    }
    Ok(())
}

fn check_number(number: &str) -> Result<()> {
    let known = number.parse::<u64>().is_ok_and(|number| number <= LARGEST);
    ensure!(known, "it names the type `{number}` of tensors, which libtorch does not have");
    Ok(())
}

/// Returns the arguments of a call, whose opening parenthesis is left out.
fn arguments<'t, 'a>(mut tokens: &'t [Token<'a>]) -> impl Iterator<Item = &'t [Token<'a>]> {
    std::iter::from_fn(move || {
        let found = argument(tokens);
        let end = tokens.get(found.len());
        tokens = tokens.get(found.len() + 1..).unwrap_or_default();
        match end {
            Some(Token::Sign(',')) => Some(found),
            // Nothing follows the last argument, whose comma TorchScript may write.
            _ => {
                tokens = &[];
                (!found.is_empty()).then_some(found)
            }
        }
    })
}

/// Returns the tokens of the argument that begins here: those before its comma, parenthesis or the end of its line.
fn argument<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0i64;
    let end = tokens.iter().position(|token| {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        depth < 0 || depth == 0 && matches!(token, Token::Sign(',') | Token::LineEnd)
    });
    &tokens[..end.unwrap_or(tokens.len())]
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn checked(code: &str) -> Result<()> {
        check(&tokens(code).unwrap())
    }

    #[test]
    fn types_that_libtorch_has_pass() {
        for code in [
            "y = torch.to(x, 6)",
            "y = torch.to(f(x, 300), 5, False, False, None, )",
            "y = torch.to(x, torch.device(\"cpu\"), 11)",
            "y = torch.softmax(x, -1)",
            "y = torch.softmax(x, 300, 6)",
            "y = torch.zeros([99, 99], dtype=6, layout=0, device=d)",
            "_1 = 6\ny = torch.to(x, _1)",
            "dtype = ops.prim.dtype(w)\ny = torch.sum(x, [99], dtype=dtype)",
            "y = x.to(15)",
        ] {
            checked(code).unwrap_or_else(|why| panic!("{code}: {why}"));
        }
    }

    #[test]
    fn numbers_that_name_no_type_are_refused() {
        for (code, number) in [
            ("y = torch.to(x, 30)", "30"),
            ("y = torch.to(x, -1)", "-1"),
            ("y = torch.to(f(x), torch.device(\"cpu\"), 4294967296, )", "4294967296"),
            ("y = torch.softmax(x, -1, 99)", "99"),
            ("y = (x).to(99)", "99"),
            ("y = torch.zeros([2], dtype=655)", "655"),
            ("y = torch.arange(3, dtype=-6, layout=0)", "-6"),
            ("_1 = 77\ny = torch.to(x, _1)", "77"),
            ("kind : int = 77\ny = torch.ones([2], dtype=kind)", "77"),
            ("_2 = -1\ny = torch.to(x, _2)", "-1"),
        ] {
            let said = checked(code).expect_err(code).to_string();
            assert!(said.contains(&format!("the type `{number}` of tensors")), "{code}: {said}");
        }
    }
}
