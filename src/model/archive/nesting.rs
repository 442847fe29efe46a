//! Bounds how deep expressions and blocks of code lie in each other, since libtorch reads each level with another level of
//! its stack, which ends the process when it is used up.

use anyhow::{Result, ensure};

use super::tokens::Token;

/// The largest depth. PyTorch writes expressions of a few levels, and a line for each of the others.
const MAX_DEPTH: usize = 256;

/// The words that make an expression or a block deeper.
const WORDS: [&str; 8] = ["and", "elif", "else", "for", "if", "in", "not", "or"];

/// Checks the brackets and the depth of all statements of a file. Every operator since the last comma counts as a level, since
/// `1 + 1 + …` is read as one sum inside another.
///
/// # Errors
/// Fails at a bracket without its other one, and where something lies too deep.
pub fn check(text: &str, tokens: &[Token]) -> Result<()> {
    let deep = |what: &str| format!("its code has {what} more than {MAX_DEPTH} levels deep");
    let indented = |line: &str| line.bytes().take_while(u8::is_ascii_whitespace).count();
    ensure!(text.lines().all(|line| indented(line) <= 2 * MAX_DEPTH), deep("blocks"));
    ensure!(tokens.iter().filter(|token| **token == Token::Name("elif")).count() <= MAX_DEPTH, deep("branches"));
    // The closing signs of the open brackets, each with the levels of what lies before it.
    let (mut open, mut levels, mut total): (Vec<(char, usize)>, usize, usize) = (Vec::new(), 0, 0);
    for token in tokens {
        match token {
            Token::LineEnd => (levels, total) = (0, 0),
            Token::Sign(',') => (levels, total) = (0, total - levels),
            Token::Sign(sign @ ('(' | '[' | '{')) => {
                let close = match sign {
                    '(' => ')',
                    '[' => ']',
                    _ => '}',
                };
                open.push((close, levels + 1));
                (levels, total) = (0, total + 1);
            }
            Token::Sign(sign @ (')' | ']' | '}')) => {
                let before = open.pop();
                ensure!(
                    before.is_some_and(|(close, _)| close == *sign),
                    "a bracket `{sign}` in its code closes nothing"
                );
                total -= levels;
                levels = before.map_or(0, |(_, before)| before);
            }
            Token::Sign(_) => (levels, total) = (levels + 1, total + 1),
            Token::Name(name) if WORDS.contains(name) => (levels, total) = (levels + 1, total + 1),
            Token::Name(_) | Token::Text(_) | Token::Number(_) => {}
        }
        ensure!(total <= MAX_DEPTH, deep("expressions"));
    }
    ensure!(open.is_empty(), "a bracket in its code is not closed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn checked(code: &str) -> Result<()> {
        check(code, &tokens(code).unwrap())
    }

    #[test]
    fn flat_code_may_be_long() {
        checked(&format!("x = [{}]\n", "(a.b + c), ".repeat(50_000))).unwrap();
        checked(&"_1 = torch.add(a.b, c)\n".repeat(50_000)).unwrap();
        checked(&format!("f(x, y={{{}}}, )[0]\n", "\"a\": f(1, 2), ".repeat(9999))).unwrap();
    }

    #[test]
    fn whatever_lies_in_itself_too_often_is_refused() {
        let (n, m) = (10_000, 200);
        for code in [
            format!("x = {}y{}", "(".repeat(n), ")".repeat(n)),
            format!("x = {}y{}", "[".repeat(n), "]".repeat(n)),
            format!("x : {}int{}", "List[".repeat(n), "]".repeat(n)),
            format!("x = {}{}", "f(a, ".repeat(n), ")".repeat(n)),
            format!("x = y{}", ".a".repeat(n)),
            format!("x = y{}", "[0]".repeat(n)),
            format!("x = {}y", "- ".repeat(n)),
            format!("x = {}y", "not ".repeat(n)),
            format!("x = 1{}", " + 1".repeat(n)),
            format!("x = {}2", "1 if y else ".repeat(n)),
            // What lies before a bracket goes on behind it.
            format!("x = {}y(1){}", "- ".repeat(m), " + 1".repeat(m)),
            (0..n).map(|level| format!("{}if x:\n", " ".repeat(level))).collect(),
            format!("if x:\n  pass\n{}", "elif x:\n  pass\n".repeat(n)),
        ] {
            let said = checked(&code).expect_err(&code[..40]).to_string();
            assert!(said.contains("more than 256 levels deep"), "{said}");
        }
        for code in ["x = (1", "x = 1)", "x = (1]"] {
            assert!(checked(code).unwrap_err().to_string().contains("a bracket"), "{code}");
        }
    }
}
