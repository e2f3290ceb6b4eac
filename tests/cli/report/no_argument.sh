mokscope report
