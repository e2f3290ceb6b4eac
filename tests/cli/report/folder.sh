mkdir here; mokscope report here
