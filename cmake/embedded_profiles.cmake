# bevy_embed_profiles(TARGET): puts the JSON files of profiles/ into the program, so that it finds
# them wherever it is copied. A new or changed file is taken in by the next build.
function(bevy_embedded_rows folder result)
    file(GLOB paths CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/profiles/${folder}/*.json)
    list(SORT paths)
    set(rows "")
    foreach(path IN LISTS paths)
        get_filename_component(stem ${path} NAME_WLE)
        file(READ ${path} text)
        string(APPEND rows "    {\"${stem}\", R\"profile(${text})profile\"},\n")
        set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                     ${path})
    endforeach()
    set(${result} "${rows}" PARENT_SCOPE)
endfunction()

function(bevy_embed_profiles target)
    bevy_embedded_rows(hardware hardware)
    bevy_embedded_rows(models models)
    set(content "#include \"cli/embedded_profiles.h\"\n\nnamespace bevy {\n\n")
    foreach(kind IN ITEMS hardware model)
        if(kind STREQUAL "hardware")
            set(rows "${hardware}")
        else()
            set(rows "${models}")
        endif()
        string(APPEND content
               "std::span<const EmbeddedProfile> embedded_${kind}_profiles() {\n"
               "    static constexpr EmbeddedProfile kRows[] = {\n${rows}    };\n"
               "    return kRows;\n}\n\n")
    endforeach()
    string(APPEND content "}  // namespace bevy\n")
    set(generated ${PROJECT_BINARY_DIR}/generated/embedded_profiles.cc)
    file(CONFIGURE OUTPUT ${generated} CONTENT "${content}" @ONLY)
    target_sources(${target} PRIVATE ${generated})
endfunction()
