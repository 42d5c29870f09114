# Completion of meantime(1) in bash. `meantime complete` knows what there is to complete.

_meantime() {
    # The command line in words as they were typed. COMP_WORDS has them, but it also splits at the
    # characters of COMP_WORDBREAKS, such as the colon of a device: pieces with nothing between are
    # one word.
    local rest=${COMP_LINE:0:COMP_POINT} words=() blanks i
    for ((i = 0; i < COMP_CWORD; i++)); do
        blanks=${rest%%[![:space:]]*}
        rest=${rest#"$blanks"}
        if [[ $blanks || ! ${words[*]} ]]; then
            words+=("${COMP_WORDS[i]}")
        else
            words[-1]+=${COMP_WORDS[i]}
        fi
        rest=${rest#"${COMP_WORDS[i]}"}
    done
    blanks=${rest%%[![:space:]]*}
    if [[ $blanks ]]; then words+=("${rest#"$blanks"}"); else words[-1]+=$rest; fi

    mapfile -t COMPREPLY < <("$1" complete bash --breaks "$COMP_WORDBREAKS" -- "${words[@]}" 2>/dev/null)
    # Some are the begin of more.
    [[ ${COMPREPLY[0]-} != *[:/=,\&\?] ]] || compopt -o nospace
}
complete -o nosort -F _meantime meantime
