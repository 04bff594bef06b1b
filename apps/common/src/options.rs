//! Options of the command line.

/// The value of the option that was just read. An error says what is wanted instead of it.
///
/// # Errors
/// If there is none, or `read` does not take it.
pub fn value<T>(
    parser: &mut lexopt::Parser,
    name: &str,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, String> {
    let given = parser.value().map_err(|e| e.to_string())?;
    given
        .to_str()
        .and_then(read)
        .ok_or_else(|| format!("--{name} wants {wanted}, not {given:?}"))
}
