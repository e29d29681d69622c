//! The filters, methods and functions of chat templates: the engine's, each charged for what it makes.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, State, Value, filters};
use minijinja_contrib::pycompat;

use super::limits::{JOINED, REPEATED, SLICED, STORED, STORED_INSIDE};
use super::lists;
use super::work::{ITEM, charge, charge_all, charge_shallow, holds, invalid, is_namespace, shallow, weigh};
use crate::json::tojson;

/// The longest text and list that `*` repeats.
const LONGEST_REPEATED: usize = 64;

/// Lists that a template stores can change afterwards.
pub(super) fn register_changing_lists(environment: &mut Environment<'static>) {
    environment.add_function("namespace", lists::namespace);
    environment.add_filter(STORED, |state: &mut State, value| lists::changing(stored(state, value)?));
    environment
        .add_filter(STORED_INSIDE, |state: &mut State, value| lists::changing(stored_inside(state, value)?));
}

/// Adds all of them.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_filter(JOINED, joined);
    environment.add_filter(REPEATED, repeated);
    environment.add_filter(SLICED, sliced);
    environment.add_filter(STORED, stored);
    environment.add_filter(STORED_INSIDE, stored_inside);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.remove_global("debug");
    environment.set_unknown_method_callback(method);

    let mut add = |name: &'static str, filter: Value, before: Before| {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            before(state, &args)?;
            let made = filter.call(state, &args)?;
            charge_shallow(state, &made)?;
            Ok::<_, Error>(made)
        });
    };
    // Texts of what they are given.
    add("string", Value::from_function(filters::string), all);
    add("upper", Value::from_function(filters::upper), all);
    add("lower", Value::from_function(filters::lower), all);
    add("title", Value::from_function(filters::title), all);
    add("capitalize", Value::from_function(filters::capitalize), all);
    add("trim", Value::from_function(filters::trim), all);
    add("safe", Value::from_function(filters::safe), all);
    add("escape", Value::from_function(filters::escape), all);
    add("e", Value::from_function(filters::escape), all);
    // Texts that may be longer than that.
    add("pprint", Value::from_function(filters::pprint), layout);
    add("tojson", Value::from_function(tojson), layout);
    add("join", Value::from_function(filters::join), join);
    add("replace", Value::from_function(filters::replace), replace);
    add("indent", Value::from_function(filters::indent), indent);
    add("format", Value::from_function(filters::format), format);
    // Lists.
    add("split", Value::from_function(filters::split), split);
    add("lines", Value::from_function(filters::lines), split);
    add("batch", Value::from_function(filters::batch), groups);
    add("slice", Value::from_function(filters::slice), groups);
    add("list", Value::from_function(filters::list), items);
    add("map", Value::from_function(filters::map), items);
    add("chain", Value::from_function(filters::chain), items);
    add("zip", Value::from_function(filters::zip), items);
    add("items", Value::from_function(filters::items), items);
    add("reverse", Value::from_function(filters::reverse), items);
    add("select", Value::from_function(filters::select), items);
    add("reject", Value::from_function(filters::reject), items);
    add("selectattr", Value::from_function(filters::selectattr), items);
    add("rejectattr", Value::from_function(filters::rejectattr), items);
    // Those compare or add values.
    add("sort", Value::from_function(filters::sort), compare);
    add("dictsort", Value::from_function(filters::dictsort), compare);
    add("unique", Value::from_function(filters::unique), compare);
    add("groupby", Value::from_function(filters::groupby), compare);
    add("min", Value::from_function(filters::min), compare);
    add("max", Value::from_function(filters::max), compare);
    add("sum", Value::from_function(filters::sum), compare);
    add("round", Value::from_function(filters::round), round);
}

/// What is not defined has no length, where the engine has an error: templates write `tools|length` without tools.
fn length(value: Value) -> Result<usize, Error> {
    if value.is_undefined() { Ok(0) } else { filters::length(&value) }
}

fn joined(state: &mut State, value: Value) -> Result<Value, Error> {
    charge_all(state, &value)?;
    Ok(value)
}

/// A factor: a number is charged as if it repeated the longest text.
fn repeated(state: &mut State, value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::Number {
        let n = f64::try_from(value.clone())?.abs() as usize; // a float too large saturates
        charge(state, n.saturating_mul(LONGEST_REPEATED))?;
    } else if value.as_str().map_or_else(|| value.len().unwrap_or(0), str::len) > LONGEST_REPEATED {
        return Err(invalid(format!("`*` repeats texts of at most {LONGEST_REPEATED} bytes")));
    }
    Ok(value)
}

fn sliced(state: &mut State, value: Value) -> Result<Value, Error> {
    charge_shallow(state, &value)?;
    Ok(value)
}

/// A namespace may be stored in a name, and is resolved when it is used.
fn stored(state: &mut State, value: Value) -> Result<Value, Error> {
    charge_all(state, &value)?;
    Ok(value)
}

fn stored_inside(state: &mut State, value: Value) -> Result<Value, Error> {
    charge_all(state, &value)?;
    match holds(&value, &is_namespace) {
        true => Err(invalid("a namespace cannot hold a namespace".into())),
        false => Ok(value),
    }
}

/// A method of Python's texts, lists and dicts.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let all_args: Vec<Value> = std::iter::once(value).chain(args).cloned().collect();
    match (value.kind(), name) {
        (ValueKind::String, "replace") => replace(state, &all_args)?,
        (ValueKind::String, "join") => {
            let list = args.first().cloned().unwrap_or_default();
            join(state, &[list, value.clone()])?;
        }
        (ValueKind::String, "format") => format(state, &all_args)?,
        (ValueKind::String, "split" | "splitlines") => split(state, &all_args)?,
        _ => all_args.iter().try_for_each(|arg| charge_shallow(state, arg))?,
    }
    let made = pycompat::unknown_method_callback(state, value, name, args)?;
    charge_shallow(state, &made)?;
    Ok(made)
}

/// Charges a filter before it works, from its arguments; the value that is filtered is the first.
type Before = fn(&mut State, &[Value]) -> Result<(), Error>;

fn all(state: &mut State, args: &[Value]) -> Result<(), Error> {
    args.iter().try_for_each(|arg| charge_all(state, arg).map(drop))
}

/// Each place of the first, each character of a text being one, and the other arguments.
fn items(state: &mut State, args: &[Value]) -> Result<(), Error> {
    for arg in args {
        let n_places = if arg.kind() == ValueKind::String { ITEM } else { 1 };
        charge(state, shallow(arg).saturating_mul(n_places))?;
    }
    Ok(())
}

fn compare(state: &mut State, args: &[Value]) -> Result<(), Error> {
    items(state, args)?;
    all(state, args)
}

/// With every value on a line of its own.
fn layout(state: &mut State, args: &[Value]) -> Result<(), Error> {
    let Some(value) = args.first() else { return Ok(()) };
    let weight = charge_all(state, value)?;
    let n_spaces = weight.n_items.saturating_mul(weight.depth);
    // An escape has six bytes; an indent and a separator at most 64.
    charge(
        state,
        weight.bytes.saturating_mul(5).saturating_add(n_spaces.saturating_mul(if args.len() > 1 {
            64
        } else {
            4
        })),
    )
}

fn join(state: &mut State, args: &[Value]) -> Result<(), Error> {
    all(state, args)?;
    let n_items = args.first().and_then(|list| list.len()).unwrap_or(0);
    // The text between may be given by name, too.
    let between: usize = args.iter().skip(1).map(|arg| weigh(arg).map_or(0, |w| w.bytes)).sum();
    charge(state, n_items.saturating_mul(between))
}

fn replace(state: &mut State, args: &[Value]) -> Result<(), Error> {
    all(state, args)?;
    let text = |i: usize| args.get(i).and_then(|arg: &Value| arg.as_str()).unwrap_or("");
    let n_found = text(0).matches(text(1)).count();
    charge(state, n_found.saturating_mul(text(2).len()))
}

fn indent(state: &mut State, args: &[Value]) -> Result<(), Error> {
    all(state, args)?;
    let n_lines =
        args.first().and_then(|text| text.as_str()).map_or(0, |text| text.matches('\n').count() + 2);
    charge(state, n_lines.saturating_mul(largest(&args[1..])))
}

/// A width or a precision counts for each conversion, and so does all that can be put in.
fn format(state: &mut State, args: &[Value]) -> Result<(), Error> {
    all(state, args)?;
    let Some(format) = args.first().and_then(|format| format.as_str()) else { return Ok(()) };
    if format.contains('*') || format.split('{').any(|field| field.contains(':') && !field.contains('}')) {
        return Err(invalid("format: a width must be a number".into()));
    }
    let digits = format.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widths: usize = digits.map(|n| n.parse().unwrap_or(usize::MAX)).fold(0, usize::saturating_add);
    let n_fields = format.matches(['%', '{']).count();
    let given: usize = args[1..].iter().map(|arg| weigh(arg).map_or(0, |w| w.bytes)).sum();
    charge(state, widths.saturating_mul(4).saturating_add(n_fields.saturating_mul(given + 512)))
}

fn split(state: &mut State, args: &[Value]) -> Result<(), Error> {
    all(state, args)?;
    let text = args.first().and_then(|text| text.as_str()).unwrap_or("");
    let n_parts = match args.get(1).and_then(|separator| separator.as_str()) {
        Some(separator) => text.matches(separator).count(),
        None => text.matches(char::is_whitespace).count(),
    };
    charge(state, n_parts.saturating_mul(ITEM))
}

fn groups(state: &mut State, args: &[Value]) -> Result<(), Error> {
    items(state, args)?;
    charge(state, largest(&args[1..]).saturating_mul(ITEM))
}

fn round(_: &mut State, args: &[Value]) -> Result<(), Error> {
    match largest(&args[1..]) {
        0..=400 => Ok(()),
        n => Err(invalid(format!("round: {n} digits are more than 400"))),
    }
}

/// The largest whole number among arguments, those given by name included.
fn largest(args: &[Value]) -> usize {
    let number = |value: &Value| match value.kind() {
        ValueKind::Number => f64::try_from(value.clone()).map_or(usize::MAX, |n| n.abs() as usize),
        _ => 0,
    };
    let named = |value: &Value| {
        let Ok(keys) = value.try_iter() else { return 0 };
        keys.filter_map(|key| value.get_item(&key).ok()).map(|value| number(&value)).max().unwrap_or(0)
    };
    let of = |value: &Value| if value.kind() == ValueKind::Map { named(value) } else { number(value) };
    args.iter().map(of).max().unwrap_or(0)
}
