# Completion of meantime(1) in fish. `meantime complete` knows what there is to complete.

function __meantime_complete
    meantime complete fish -- (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c meantime -f -k -a '(__meantime_complete)'
