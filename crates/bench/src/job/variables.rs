//! fio's variables: `${NAME}` of the environment, and `$pagesize`, `$mb_memory` and `$ncpus` of the
//! machine.

use std::thread;

/// A variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables of `text`. A value with one of the machine's variables may calculate:
/// `4*$mb_memory`.
pub(super) fn replaced(text: &str, environment: Environment<'_>) -> Result<String, String> {
    let text = from_environment(text, environment)?;
    let mut plain = text.clone();
    for (name, number) in [
        ("$pagesize", rustix::param::page_size as fn() -> usize),
        ("$mb_memory", memory_mib),
        ("$ncpus", || thread::available_parallelism().map_or(1, usize::from)),
    ] {
        if plain.contains(name) {
            plain = plain.replace(name, &number().to_string());
        }
    }
    match plain.split_once('=') {
        Some((key, value)) if plain != text => match calculated(value.trim()) {
            Some(Ok(number)) => Ok(format!("{key}={number}")),
            Some(Err(why)) => Err(why),
            None => Ok(plain),
        },
        _ => Ok(plain),
    }
}

fn memory_mib() -> usize {
    // Equal on every machine, so that a fuzzing input is reproducible.
    if cfg!(feature = "fuzzing") {
        return 8 << 10;
    }
    crate::memory::total_bytes().map_or(0, |bytes| (bytes >> 20) as usize)
}

fn from_environment(text: &str, environment: Environment<'_>) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        out += before;
        let Some((name, left)) = after.split_once('}') else {
            out += "${";
            rest = after;
            continue;
        };
        // fio takes a variable that is not set for an empty one, and then reports that the key's
        // value is missing.
        let value = environment(name).ok_or_else(|| {
            format!(
                "the environment has no variable {}; set it for this command",
                super::error::shown(name)
            )
        })?;
        out += &value;
        rest = left;
    }
    Ok(out + rest)
}

/// Calculates sums and products of whole numbers. Returns `None` for other text.
fn calculated(text: &str) -> Option<Result<u64, String>> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !text.split(['+', '-', '*', '/']).all(is_number) {
        return None;
    }
    let number = |part: &str| part.parse().ok();
    let product =
        |part: &str| combined(part, ['*', '/'], number, [u64::checked_mul, u64::checked_div]);
    let sum = combined(&text, ['+', '-'], product, [u64::checked_add, u64::checked_sub]);
    Some(sum.ok_or_else(|| "the result is no whole number of 64 bits".to_owned()))
}

/// Combines the parts of `text` between two kinds of signs from the left.
fn combined(
    text: &str,
    signs: [char; 2],
    value: impl Fn(&str) -> Option<u64>,
    [first, second]: [fn(u64, u64) -> Option<u64>; 2],
) -> Option<u64> {
    let mut values = text.split(signs).map(value);
    let begin = values.next()??;
    text.matches(signs).zip(values).try_fold(begin, |left, (sign, right)| {
        let combine = if sign.starts_with(signs[0]) { first } else { second };
        combine(left, right?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_environment() {
        let environment = |name: &str| (name == "BS").then(|| "8k".to_owned());
        let replaced = |text: &str| replaced(text, &environment);
        assert_eq!(replaced("bs=${BS}").as_deref(), Ok("bs=8k"));
        assert_eq!(replaced("bs=${BS},1${BS}").as_deref(), Ok("bs=8k,18k"));
        assert_eq!(replaced("name=$BS ${").as_deref(), Ok("name=$BS ${"));
        let error = replaced("bs=${NONE}").unwrap_err();
        assert_eq!(error, "the environment has no variable NONE; set it for this command");
    }

    #[test]
    fn numbers_of_the_machine() {
        let replaced = |text: &str| replaced(text, &|_| None);
        let page = rustix::param::page_size();
        assert_eq!(replaced("bs=$pagesize"), Ok(format!("bs={page}")));
        assert_eq!(
            replaced("size = 3*$pagesize + 2*$pagesize/2-1"),
            Ok(format!("size ={}", 4 * page - 1))
        );
        assert_eq!(
            replaced("name=x$ncpus").unwrap(),
            format!("name=x{}", replaced("$ncpus").unwrap())
        );
        assert!(memory_mib() > 16);
        assert!(replaced("size=$pagesize/0").is_err() && replaced("size=1-$pagesize").is_err());
        assert!(replaced("size=9999999999999999*$pagesize").is_err());
        // A value without such a variable is not calculated: 4*4 is not a size.
        assert_eq!(replaced("size=4*4").as_deref(), Ok("size=4*4"));
    }
}
